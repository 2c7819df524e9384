#pragma once

#include "backend/ops/list.h"

/// The CPU's kernels, one for each operation of ops/list.h, compiled once per instruction set from
/// kernels/*.cpp. Every kernel cuts its work by problem size, never by thread count, so that results do not
/// depend on the number of threads.
///
/// Those files are compiled with instructions that the running machine may lack, so nothing in them may leave
/// an inline function that the linker could share with the rest of the program: they use no standard
/// containers or algorithms.
namespace drover::cpu {

/// Reports a dtype that the checks should have rejected, and aborts. Defined outside the kernels: the strings
/// of bug() are inline code.
[[noreturn]] void unexpected_dtype();

/// EmbeddingBackward with the tokens of each vocabulary row chained in ascending order, so that a row can be
/// summed in fp32 and written once. The chains are made by the backend: they need memory, which kernels do
/// not allocate.
struct GroupedEmbeddingBackward {
    const EmbeddingBackward& operation;
    const std::int32_t* first;  ///< [V] the first token of each row of dweight, −1 for none
    const std::int32_t* next;   ///< [N] the next token of the same row, −1 at the end
};

/// Chains of multiply-adds on values in registers, independent of each other, on every thread: nothing but
/// arithmetic.
struct PeakLoop {
    DType arithmetic;          ///< f32, or bf16 where the processor has AVX512_BF16
    std::int64_t repetitions;  ///< of every chain
    double* flops_per_second;  ///< set to the sum over threads, each measured by its own CPU time, so that
                               ///< other programs do not affect it
};

/// The argument of an operation's kernel: the operation itself, except for those listed here.
template <class Operation>
struct KernelArgument {
    using Type = Operation;
};
template <>
struct KernelArgument<EmbeddingBackward> {
    using Type = GroupedEmbeddingBackward;
};

/// One function per operation, all of one instruction set.
struct Kernels {
#define DROVER_DECLARE(name, Listed) void (*name)(const KernelArgument<Listed>::Type&);
    DROVER_KERNEL_OPERATIONS(DROVER_DECLARE)
#undef DROVER_DECLARE
    void (*peak_loop)(const PeakLoop&);
};

namespace avx2 {
extern const Kernels kernels;
}
namespace avx512 {
extern const Kernels kernels;
}

#ifdef DROVER_ISA
namespace DROVER_ISA {
#define DROVER_DECLARE(name, Listed) void name(const KernelArgument<Listed>::Type&);
DROVER_KERNEL_OPERATIONS(DROVER_DECLARE)
#undef DROVER_DECLARE
void peak_loop(const PeakLoop&);
}  // namespace DROVER_ISA
#endif

}  // namespace drover::cpu
