#include "text/merge_table.h"

#include <algorithm>
#include <bit>
#include <functional>

#include "core/error.h"

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

namespace {

void merge_by_scanning(const MergeTable& merges, EncodeScratch& scratch) {
    auto& symbols = scratch.symbols;
    auto& ranks = scratch.ranks;  // of the pair that starts at each symbol
    ranks.resize(symbols.size());
    const auto rank = [&](std::size_t i) {
        return i + 1 < symbols.size() ? merges.find(symbols[i], symbols[i + 1]).rank : MergeTable::no_rank;
    };
    for (std::size_t i = 0; i < symbols.size(); ++i) ranks[i] = rank(i);
    while (symbols.size() > 1) {
        const auto lowest = std::min_element(ranks.begin(), ranks.end());
        if (*lowest == MergeTable::no_rank) return;
        const auto i = static_cast<std::size_t>(lowest - ranks.begin());
        symbols[i] = merges.find(symbols[i], symbols[i + 1]).id;
        symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(i) + 1);
        ranks.erase(ranks.begin() + static_cast<std::ptrdiff_t>(i) + 1);
        ranks[i] = rank(i);
        if (i > 0) ranks[i - 1] = rank(i - 1);
    }
}

/// A linked list of symbols and a heap of (rank, position). A heap entry is valid only while its rank is
/// still that of the pair at its position.
class HeapMerger {
  public:
    HeapMerger(const MergeTable& merges, EncodeScratch& scratch) : merges_(merges), s_(scratch) {
        const std::size_t count = s_.symbols.size();
        require(count < end, "a piece of 4 GiB");
        s_.ranks.resize(count);
        s_.next.resize(count);
        s_.previous.resize(count);
        s_.heap.clear();
        for (std::uint32_t i = 0; i < count; ++i) {
            s_.next[i] = i + 1 < count ? i + 1 : end;
            s_.previous[i] = i > 0 ? i - 1 : end;
        }
        for (std::uint32_t i = 0; i < count; ++i) {
            s_.ranks[i] = rank(i);
            if (s_.ranks[i] != MergeTable::no_rank) s_.heap.push_back(entry(i));
        }
        std::make_heap(s_.heap.begin(), s_.heap.end(), std::greater<>());
    }

    void run() {
        while (!s_.heap.empty()) {
            std::pop_heap(s_.heap.begin(), s_.heap.end(), std::greater<>());
            const std::uint64_t top = s_.heap.back();
            s_.heap.pop_back();
            const auto i = static_cast<std::uint32_t>(top);
            if (s_.ranks[i] != static_cast<std::uint32_t>(top >> 32)) continue;
            merge(i);
        }
        std::size_t kept = 0;
        for (std::uint32_t i = 0; i != end; i = s_.next[i]) s_.symbols[kept++] = s_.symbols[i];
        s_.symbols.resize(kept);
    }

  private:
    static constexpr std::uint32_t end = UINT32_MAX;

    std::uint32_t rank(std::uint32_t i) const {
        const std::uint32_t next = s_.next[i];
        return next == end ? MergeTable::no_rank : merges_.find(s_.symbols[i], s_.symbols[next]).rank;
    }
    std::uint64_t entry(std::uint32_t i) const { return std::uint64_t{s_.ranks[i]} << 32 | i; }

    void merge(std::uint32_t i) {
        const std::uint32_t gone = s_.next[i];
        s_.symbols[i] = merges_.find(s_.symbols[i], s_.symbols[gone]).id;
        s_.next[i] = s_.next[gone];
        if (s_.next[i] != end) s_.previous[s_.next[i]] = i;
        s_.ranks[gone] = MergeTable::no_rank;
        renew(i);
        if (s_.previous[i] != end) renew(s_.previous[i]);
    }
    void renew(std::uint32_t i) {
        s_.ranks[i] = rank(i);
        if (s_.ranks[i] == MergeTable::no_rank) return;
        s_.heap.push_back(entry(i));
        std::push_heap(s_.heap.begin(), s_.heap.end(), std::greater<>());
    }

    const MergeTable& merges_;
    EncodeScratch& s_;
};

}  // namespace

void merge_symbols(const MergeTable& merges, EncodeScratch& scratch) {
    constexpr std::size_t worth_a_heap = 64;
    if (scratch.symbols.size() < worth_a_heap)
        merge_by_scanning(merges, scratch);
    else
        HeapMerger(merges, scratch).run();
}

}  // namespace drover
