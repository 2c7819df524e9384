#pragma once

#include <cstdint>
#include <map>
#include <vector>

namespace drover::cuda {

/// Leaves that add to the same memory, as chains in the order of the leaves: one thread adds those of a
/// chain, one after the other. `next` is −1 at a chain's end; `first` says where a chain begins.
struct ChainLink {
    std::int32_t next, first;
};

/// A link for every target; a null target is in no chain.
inline std::vector<ChainLink> chain_targets(const std::vector<const void*>& targets) {
    std::vector<ChainLink> links(targets.size());
    std::map<const void*, std::size_t> last;
    for (std::size_t i = 0; i < targets.size(); ++i) {
        links[i] = {-1, 0};
        if (targets[i] == nullptr) continue;
        const auto [at, is_first] = last.try_emplace(targets[i], i);
        links[i].first = is_first;
        if (!is_first) links[at->second].next = static_cast<std::int32_t>(i);
        at->second = i;
    }
    return links;
}

}  // namespace drover::cuda
