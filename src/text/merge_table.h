#pragma once

#include <cstdint>
#include <vector>

#include "text/token_model.h"
#include "text/tokenizer.h"

namespace drover {

/// The result and rank of merging two adjacent symbols: a flat hash table keyed by pairs of ids.
class MergeTable {
  public:
    struct Merge {
        std::uint32_t rank;  ///< lower ranks are merged first
        TokenId id;
    };
    static constexpr std::uint32_t no_rank = UINT32_MAX;

    /// Allocates room for `pairs` merges.
    explicit MergeTable(std::size_t pairs = 0);
    /// Adds a merge; the last one of a pair counts. At most as many as the table has room for.
    void put(TokenId left, TokenId right, Merge merge);

    /// The rank is no_rank if the two do not merge.
    Merge find(TokenId left, TokenId right) const {
        const std::uint64_t key = key_of(left, right);
        for (std::size_t slot = hash(key);; slot = (slot + 1) & mask_) {
            if (slots_[slot].key == key) return slots_[slot].merge;
            if (slots_[slot].key == empty) return {no_rank, 0};
        }
    }

  private:
    struct Slot {
        std::uint64_t key;
        Merge merge;
    };
    static constexpr std::uint64_t empty = UINT64_MAX;  // ids are not negative, so no pair has this key

    static std::uint64_t key_of(TokenId left, TokenId right) {
        return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 |
               static_cast<std::uint32_t>(right);
    }
    std::size_t hash(std::uint64_t key) const { return (key * 0x9E3779B97F4A7C15u) >> shift_; }

    std::vector<Slot> slots_;
    std::size_t mask_;
    int shift_;
};

/// Merges scratch.symbols until no adjacent symbols merge: always the pair of lowest rank, leftmost first
/// among equals. Scans short words; uses a heap, in O(n log n), for long ones.
void merge_symbols(const MergeTable& merges, EncodeScratch& scratch);

}  // namespace drover
