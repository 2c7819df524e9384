#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace drover {

/// A GPU as its driver describes it.
struct GpuFacts {
    std::string name;
    int major = 0, minor = 0;  ///< compute capability
    std::size_t bytes = 0;
    std::optional<std::size_t> free_bytes{};  ///< absent where NVML is not there
    std::string bus_id{};                     ///< "0000:1B:00.0"
    bool prohibited = false;                  ///< its compute mode lets no program use it
};

/// NVIDIA's driver. Its libraries are opened by name; nothing is started on a GPU.
struct GpuDriver {
    bool installed = false;       ///< its library is there
    std::string failure{};        ///< why no GPU can be used, without a full stop; empty: some can
    int cuda_version = 0;         ///< the newest that it supports: 13000 for 13.0
    std::string version{};        ///< "580.65.06"; empty: unknown
    std::size_t gpus_on_bus = 0;  ///< NVIDIA's, which the kernel lists even without a driver
    std::vector<GpuFacts> gpus{};
};

/// `root` is where /sys and /proc are looked for.
GpuDriver ask_gpu_driver(const std::filesystem::path& root);

/// "13.0" of 13000.
std::string cuda_version_text(int version);

/// What a module has for a GPU.
enum class GpuCode : std::uint8_t {
    none,
    unknown,  ///< the list of architectures does not tell ("native")
    ptx,      ///< which the driver compiles when it is first used
    machine,
};

/// For a GPU of this compute capability, of code that was compiled for `architectures`, which are named as
/// CMake names them ("80-real,90a,90-virtual").
GpuCode code_for(std::string_view architectures, int major, int minor);

}  // namespace drover
