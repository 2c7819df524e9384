#pragma once

#include <memory>
#include <optional>

#include "api/mesh_settings.h"
#include "backend/backend.h"
#include "comm/nccl/nccl_communicators.h"

namespace drover {

/// The mesh of a run, with what carries the collectives of its backend's tensors. This is the one place that
/// decides it: the world's own communicators for the CPU, NCCL's for GPUs.
class RunMesh {
  public:
    /// A mesh of one rank where there is no world; else collective. Error when GPUs cannot exchange data
    /// here. World and backend must outlive it.
    RunMesh(World* world, const RunRanks& ranks, const MeshSettings& settings, Backend& backend);

    const Mesh& operator*() const { return *mesh_; }
    const Mesh* operator->() const { return mesh_.get(); }

  private:
    std::optional<NcclCommunicators> gpus_;
    std::unique_ptr<const Mesh> mesh_;
};

}  // namespace drover
