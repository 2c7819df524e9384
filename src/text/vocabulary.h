#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace drover {

/// Tokens by id and ids by token. A flat hash table over one block of characters: lookups do not allocate.
class Vocabulary {
  public:
    /// Larger ids are rejected: they could only be a mistake or an attack.
    static constexpr std::int64_t largest_id = (1 << 24) - 1;

    /// Adds a token, or gives an existing one an id. 0 <= id <= largest_id. Several tokens may share an id;
    /// the last one is its text.
    void add(std::string_view token, TokenId id);
    void reserve(std::size_t tokens);

    std::optional<TokenId> find(std::string_view token) const;
    std::optional<std::string_view> token(TokenId id) const;
    /// Calls `visit(token, id)` for every token in the order in which they were added.
    template <class Visit>
    void for_each(Visit&& visit) const {
        for (const Entry& entry : entries_) visit(text(entry), entry.id);
    }
    /// Number of distinct tokens.
    std::size_t size() const { return entries_.size(); }
    /// One more than the largest id; 0 when empty.
    TokenId id_limit() const { return static_cast<TokenId>(entry_of_id_.size()); }

  private:
    struct Entry {
        std::size_t begin;
        std::uint32_t length;
        TokenId id;
    };
    static constexpr std::uint32_t nothing = UINT32_MAX;

    std::string_view text(const Entry& entry) const { return {text_.data() + entry.begin, entry.length}; }
    /// The slot that holds `token`, or the empty one where it belongs.
    std::size_t slot_of(std::string_view token) const;
    void rehash(std::size_t slots);

    std::string text_;
    std::vector<Entry> entries_;
    std::vector<std::uint32_t> slots_;        // index of an entry, or nothing; their number is a power of two
    std::vector<std::uint32_t> entry_of_id_;  // index of an entry, or nothing
};

}  // namespace drover
