#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace drover {

/// The instructions that the CPU's kernels are compiled for, from the least to the best.
enum class CpuInstructions : std::uint8_t { avx2, avx512, amx };

/// How a GPU multiplies the matrices of experts.
enum class GroupedGemmMethod : std::uint8_t {
    cublas,   ///< one cuBLASLt product per expert that has rows
    streams,  ///< the same on several streams, so that small products share the GPU
    kernel,   ///< all in one kernel of our own
};

/// What can be set of how the backends work. The results do not depend on it but for rounding.
struct BackendSettings {
    std::optional<CpuInstructions> cpu_instructions{};  ///< absent: the best that the processor has
    std::string
        onednn_instructions{};  ///< the best that oneDNN may use, as its own variable calls it; "": any
    std::optional<GroupedGemmMethod>
        grouped_gemm{};  ///< absent: by sizes. Other sizes than its own go to cuBLASLt
    /// Memory that a piece of attention's backward may take on a GPU.
    std::int64_t attention_piece_mb = default_attention_piece_mb;
    bool cuda_graphs = true;  ///< a GPU remembers forward and backward and is given them at once

    static constexpr std::int64_t default_attention_piece_mb = 4096;
};

/// The settings in the variables DROVER_CPU_ISA, DROVER_GROUPED_GEMM, DROVER_ATTENTION_PIECE_MB and
/// DROVER_CUDA_GRAPHS (docs/environment.md), and in oneDNN's own. Error names a variable whose value is
/// wrong.
BackendSettings backend_settings_from_environment();

}  // namespace drover
