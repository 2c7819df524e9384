#pragma once

#include <algorithm>

#include "comm/counting_communicator.h"
#include "parallel/mesh.h"

namespace drover::test {

/// A place in a mesh of ranks that do not exist: for plans.
inline Mesh mesh_of_nobody(const MeshShape& shape, int rank) {
    static SentCounts ignored;
    const auto make = [rank](std::string axis, const std::vector<int>& ranks) {
        const auto place = std::find(ranks.begin(), ranks.end(), rank) - ranks.begin();
        return make_counting_communicator(std::move(axis), static_cast<int>(ranks.size()),
                                          static_cast<int>(place), Device::cpu, ignored);
    };
    return Mesh(shape, rank, 1, make, {});
}

}  // namespace drover::test
