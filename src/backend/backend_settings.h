#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace drover {

/// The instruction sets that the CPU's kernels are compiled for, lowest first.
enum class CpuInstructions : std::uint8_t { avx2, avx512, amx };

/// How a GPU multiplies the matrices of experts.
enum class GroupedGemmMethod : std::uint8_t {
    cublas,   ///< one cuBLASLt product per expert that has rows
    streams,  ///< the same on several streams, so that small products share the GPU
    kernel,   ///< all in one kernel of our own
};

/// How a GPU computes attention's gradients.
enum class AttentionBackwardMethod : std::uint8_t {
    cudnn,
    kernel,  ///< a kernel of our own, for Hopper
};

/// Settings of the backends. Results depend on them only through rounding.
struct BackendSettings {
    std::optional<CpuInstructions> cpu_instructions{};  ///< absent: the best that the processor has
    std::string
        onednn_instructions{};  ///< the best that oneDNN may use, as its own variable names it; "": any
    std::optional<GroupedGemmMethod>
        grouped_gemm{};  ///< absent: chosen by size. Sizes that a method does not support go to cuBLASLt
    /// Absent: our own kernel. What it does not support goes to cuDNN, then to the plain kernel.
    std::optional<AttentionBackwardMethod> attention_backward{};
    /// Memory that a piece of attention's backward may take on a GPU.
    std::int64_t attention_piece_mb = default_attention_piece_mb;
    bool plain_attention = false;  ///< on a GPU, even where cuDNN's fused attention could be used
    /// Shared memory that a block may have on a GPU, 99 or more; absent: as much as there is. For tests of
    /// the kernels that GPUs with less of it run.
    std::optional<int> gpu_shared_memory_kb{};
    bool cuda_graphs = true;  ///< forward and backward are recorded as CUDA graphs and launched as a whole

    static constexpr std::int64_t default_attention_piece_mb = 4096;
};

/// The settings in the variables DROVER_CPU_ISA, DROVER_GROUPED_GEMM, DROVER_ATTENTION_BACKWARD,
/// DROVER_ATTENTION_PIECE_MB and DROVER_CUDA_GRAPHS (docs/environment.md), and in oneDNN's own. Error names a
/// variable whose value is wrong.
BackendSettings backend_settings_from_environment();

}  // namespace drover
