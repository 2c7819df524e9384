#include "app/bench_mesh.h"

#include "backend/backend.h"
#include "comm/threads/thread_world.h"

namespace drover {

BenchMesh::BenchMesh(bool copies, bool timed, Backend& backend) {
    if (!copies) {
        mesh_ = std::make_unique<const Mesh>();
        return;
    }
    world_ = ThreadWorld(1, {.gpu_times = timed}).join(0);
    if (backend.device() == Device::cuda) gpu_.emplace(*world_, load_nccl(backend));
    const auto make = [&](std::string axis, std::vector<int> ranks, SingleRankAxis single_rank) {
        return gpu_ ? gpu_->make(std::move(axis), std::move(ranks), single_rank)
                    : world_->make_communicator(std::move(axis), std::move(ranks), single_rank);
    };
    mesh_ = std::make_unique<const Mesh>(Mesh::that_copies(*world_, make));
}

CommunicationTimes BenchMesh::communication_times() {
    CommunicationTimes times;
    if (world_) times += world_->communication_times();
    if (gpu_) times += gpu_->times();
    return times;
}

}  // namespace drover
