#include "backend/cpu/kernels.h"

namespace drover::cpu::DROVER_ISA {

extern const Kernels kernels;
const Kernels kernels = {
#define DROVER_ENTRY(name, Listed) .name = name,
    DROVER_KERNEL_OPERATIONS(DROVER_ENTRY)
#undef DROVER_ENTRY
        .peak_loop = peak_loop,
};

}  // namespace drover::cpu::DROVER_ISA
