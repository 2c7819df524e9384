#include "train/engine/planning_mesh.h"

#include <algorithm>

namespace drover {

Mesh counting_mesh(const Mesh& mesh, int rank, Device device, SentCounts& counts) {
    const auto make_on = [&](Device where) -> MakeCommunicator {
        return [&counts, where, rank](std::string axis, const std::vector<int>& ranks) {
            const auto place = std::find(ranks.begin(), ranks.end(), rank) - ranks.begin();
            return make_counting_communicator(std::move(axis), static_cast<int>(ranks.size()),
                                              static_cast<int>(place), where, counts);
        };
    };
    return Mesh(mesh.shape(), rank, mesh.key_value_copies().size(), make_on(device), make_on(Device::cpu));
}

}  // namespace drover
