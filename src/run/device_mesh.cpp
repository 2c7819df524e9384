#include "run/device_mesh.h"

#include "backend/backend.h"

namespace drover {

void check_devices_alike(const ProcessGroup& ranks, Device device) {
    check_ranks_agree(
        ranks, {{"the device", device == Device::cpu ? "CPU" : "GPU"}},
        "With --device cuda, those without a usable GPU say what is missing; --device cpu needs none.");
}

DeviceMesh::DeviceMesh(World* world, const ProcessGroup& ranks, const MeshPlan& settings, Backend& backend)
    : world_(world), stream_(backend.main_stream()) {
    if (world == nullptr) {
        mesh_ = std::make_unique<const Mesh>();
        return;
    }
    check_devices_alike(ranks, backend.device());
    MakeCommunicator make;  // empty: use the world's
    if (backend.device() == Device::cuda) {
        std::unique_ptr<GpuLinks> links;
        ranks.together([&] { links = load_nccl(backend); });
        gpus_.emplace(*world, std::move(links));
        make = gpus_->maker();
    }
    mesh_ = std::make_unique<const Mesh>(*world, settings.shape, settings.key_value_copies, make);
}

CommunicationTimes DeviceMesh::communication_times() {
    CommunicationTimes times;
    if (world_ != nullptr) times += world_->communication_times();
    if (gpus_) times += gpus_->times();
    return times;
}

void DeviceMesh::observe(CollectiveObserver* observer, UnderWay under_way) {
    if (world_ != nullptr) world_->observe(observer);
    if (gpus_ && world_->options().gpu_times) gpus_->observe(observer, stream_, under_way);
}

}  // namespace drover
