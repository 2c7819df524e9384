#include "backend/cpu/kernels.h"

namespace drover::cpu::DROVER_ISA {

extern const Kernels kernels;
const Kernels kernels = {
#define DROVER_ENTRY(name, Operation) .name = name,
    DROVER_CPU_KERNELS(DROVER_ENTRY)
#undef DROVER_ENTRY
};

}  // namespace drover::cpu::DROVER_ISA
