#include "text/merge_table.h"

#include <bit>

namespace drover {

MergeTable::MergeTable(std::size_t pairs) {
    const std::size_t slots = std::bit_ceil(pairs + pairs / 2 + 2);
    slots_.assign(slots, {empty, {no_rank, 0}});
    mask_ = slots - 1;
    shift_ = 64 - std::countr_zero(slots);
}

void MergeTable::put(TokenId left, TokenId right, Merge merge) {
    const std::uint64_t key = key_of(left, right);
    std::size_t slot = hash(key);
    while (slots_[slot].key != key && slots_[slot].key != empty) slot = (slot + 1) & mask_;
    slots_[slot] = {key, merge};
}

}  // namespace drover
