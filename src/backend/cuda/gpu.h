#pragma once

#include <algorithm>
#include <compare>
#include <optional>
#include <string>

/// What a GPU can do, as far as operations choose their kernels by it, and which code of the module it runs.
/// A build may hold code for several kinds of GPUs, of which the driver takes one, so both are known only at
/// run time.
namespace drover::cuda {

/// A compute capability, such as 8.6.
struct Capability {
    int major = 0, minor = 0;

    auto operator<=>(const Capability&) const = default;
};

/// The first GPUs with all that every kernel needs: bfloat16, and copies to shared memory that run by
/// themselves.
inline constexpr Capability oldest_capability{8, 0};
inline constexpr Capability hopper{9, 0};
/// The first GPUs with FP8 products.
inline constexpr Capability oldest_with_fp8{8, 9};

inline std::string text_of(Capability capability) {
    return std::to_string(capability.major) + "." + std::to_string(capability.minor);
}
/// What DROVER_CUDA_ARCHITECTURES calls the machine code of such a GPU. That of Hopper has its own products.
inline std::string architecture_of(Capability capability) {
    return std::to_string(10 * capability.major + capability.minor) + (capability == hopper ? "a" : "");
}

/// The code that runs, as it says of itself (kernels/running_code.h).
struct RunningCode {
    Capability compiled_for;
    bool hopper_products = false;  ///< it was compiled with the instructions that only 9.0 has (sm_90a)
};

/// How a GPU uses this code.
struct CodeUse {
    /// It is PTX, which the driver compiles when a kernel is first used: machine code does not run on another
    /// major version. (PTX of the GPU's own major version is not told from machine code.)
    bool compiled_by_driver = false;
    /// Kernels may start while the preceding one ends. Code for older GPUs does not wait for it, even on a
    /// newer one.
    bool starts_early = false;
    bool hopper_products = false;
};

inline CodeUse use_of(const RunningCode& code, Capability gpu) {
    return {.compiled_by_driver = code.compiled_for.major != gpu.major,
            .starts_early = code.compiled_for >= hopper && gpu >= hopper,
            .hopper_products = code.hopper_products && gpu == hopper};
}

struct Gpu {
    Capability capability;
    int multiprocessors = 0;
    /// Bytes that a block may have at most, static and dynamic together: 99 KiB with capability 8.6 or 8.9,
    /// 163 with 8.0, 227 with 9.0.
    int shared_memory = 0;
    CodeUse code;
};

/// Of `bytes` that a block may have on the GPU, what the settings leave
/// (BackendSettings::gpu_shared_memory_kb).
inline int shared_memory_within(int bytes, std::optional<int> most_kb) {
    return most_kb ? std::min(bytes, *most_kb * 1024) : bytes;
}

}  // namespace drover::cuda
