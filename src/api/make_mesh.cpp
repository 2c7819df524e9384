#include "api/make_mesh.h"

#include <fmt/format.h>

#include "core/error.h"

namespace drover {

std::unique_ptr<const Mesh> make_mesh(World* world, const MeshSettings& settings, const Backend& backend) {
    if (world == nullptr) return std::make_unique<const Mesh>();
    if (backend.device() == Device::cuda)
        throw Error(fmt::format("{} processes were started for a GPU, but GPUs cannot exchange data yet.",
                                world->size()),
                    "Start one process, or add --device cpu.");
    return std::make_unique<const Mesh>(*world, settings.shape, settings.key_value_copies);
}

}  // namespace drover
