#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "text/token_hash.h"
#include "text/tokenizer.h"

namespace drover {

/// Ids of words seen before. One cache line per word, direct mapped: a newer word replaces an older one, so
/// memory is bounded and no counts are needed. For one thread at a time.
class WordCache {
  public:
    static constexpr std::size_t longest_word = 31;
    static constexpr std::size_t most_ids = 7;

    /// The ids of `word` (at most longest_word bytes); empty if it is not cached (every word has ids).
    std::span<const TokenId> find(std::string_view word, std::uint64_t hash) const {
        const Entry& entry = entries_[hash & (entries_.size() - 1)];
        if (entry.length != word.size() || std::memcmp(entry.word.data(), word.data(), word.size()) != 0)
            return {};
        return {entry.ids.data(), entry.count};
    }
    /// Stores a word; one that is too long or has too many ids is left out.
    void put(std::string_view word, std::uint64_t hash, std::span<const TokenId> ids) {
        if (word.size() > longest_word || ids.empty() || ids.size() > most_ids) return;
        Entry& entry = entries_[hash & (entries_.size() - 1)];
        entry.length = static_cast<std::uint8_t>(word.size());
        entry.count = static_cast<std::uint8_t>(ids.size());
        std::memcpy(entry.word.data(), word.data(), word.size());
        std::memcpy(entry.ids.data(), ids.data(), ids.size_bytes());
    }

  private:
    struct alignas(64) Entry {
        std::array<char, longest_word> word;
        std::uint8_t length = 0;
        std::array<TokenId, most_ids> ids;
        std::uint8_t count = 0;
    };
    static_assert(sizeof(Entry) == 64);

    std::vector<Entry> entries_ = std::vector<Entry>(1 << 15);
};

}  // namespace drover
