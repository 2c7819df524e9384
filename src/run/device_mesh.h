#pragma once

#include <memory>
#include <optional>

#include "backend/backend.h"
#include "comm/nccl/nccl_communicators.h"
#include "run/mesh_plan.h"

namespace drover {

/// Error that names the ranks whose device is another one than the first's, as it may happen with
/// `--device auto`. Collective.
void check_devices_alike(const ProcessGroup& ranks, Device device);

/// The mesh of a run, with what carries the collectives of its backend's tensors. This is the one place that
/// decides it: the world's own communicators for the CPU, NCCL's for GPUs.
class DeviceMesh {
  public:
    /// A mesh of one rank where there is no world; else collective. Error when ranks have different
    /// devices, or GPUs that cannot exchange data here. World and backend must outlive it.
    DeviceMesh(World* world, const ProcessGroup& ranks, const MeshPlan& settings, Backend& backend);

    /// How many ranks have the GPU of this one, itself among them; 1 on the CPU.
    int ranks_of_gpu() const { return gpus_ ? gpus_->ranks_of_gpu() : 1; }

    /// What this rank's collectives took so far, those on its GPU included if the world's options ask for it;
    /// nothing without a world.
    CommunicationTimes communication_times();

    const Mesh& operator*() const { return *mesh_; }
    const Mesh* operator->() const { return mesh_.get(); }

  private:
    World* world_;
    std::optional<NcclCommunicators> gpus_;
    std::unique_ptr<const Mesh> mesh_;
};

}  // namespace drover
