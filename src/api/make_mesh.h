#pragma once

#include <memory>

#include "api/mesh_settings.h"
#include "backend/backend.h"

namespace drover {

/// The mesh of a run: of one rank where there is no world. This is the one place that decides what carries
/// the collectives of a backend's tensors: the world's own communicators for the CPU. Error when there is
/// nothing that could. World and backend must outlive the mesh.
std::unique_ptr<const Mesh> make_mesh(World* world, const MeshSettings& settings, const Backend& backend);

}  // namespace drover
