#pragma once

#include <cstdint>
#include <string_view>

#include "backend/backend_settings.h"
#include "backend/ops/list.h"

/// The interface between the program and the module drover_cuda.so. Both come from one build: the Backend
/// that the module makes is used through its virtual functions.
namespace drover {

class Backend;

/// Changes with the list of operations, with the sizes of the types that are passed, and with the first
/// number, which is incremented when anything else in Backend changes.
constexpr int make_cuda_module_version() {
    std::uint32_t hash = 7;
    const auto mix = [&](std::uint64_t value) {
        hash = (hash ^ static_cast<std::uint32_t>(value)) * 0x01000193u;  // FNV
    };
    mix(sizeof(BackendSettings));
#define DROVER_MIX(name, Listed)                                                               \
    for (const char letter : std::string_view(#name)) mix(static_cast<std::uint64_t>(letter)); \
    mix(sizeof(Listed));
    DROVER_OPERATIONS(DROVER_MIX)
#undef DROVER_MIX
    return static_cast<int>(hash >> 1);
}
inline constexpr int cuda_module_version = make_cuda_module_version();

/// What the module was built with and what it runs with, for reports. Versions are numbers as the libraries
/// write them: CUDA 13.0 is 13000, cuDNN 9.14.0 is 91400.
struct CudaModuleFacts {
    const char* architectures;  ///< of its machine code, as CMake names them: "90a", "80,90a"
    int runtime_version;        ///< of the CUDA libraries that were found
    int cudnn_version;
};

}  // namespace drover

extern "C" {
int drover_cuda_module_version();
/// Uses no GPU.
drover::CudaModuleFacts drover_cuda_module_facts();
/// Throws drover::Error; the caller owns what is returned.
drover::Backend* drover_make_cuda_backend(int ordinal, const drover::BackendSettings& settings);
}
