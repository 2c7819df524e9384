#pragma once

#include <omp.h>

#include <cstring>
#include <vector>

#include "backend/backend_settings.h"
#include "backend/cpu/tiles/amx_probe.h"
#include "core/tensor.h"

namespace drover::test {

/// Sets the number of threads, and restores the old one at the end.
class Threads {
  public:
    explicit Threads(int count) : before_(omp_get_max_threads()) { omp_set_num_threads(count); }
    ~Threads() { omp_set_num_threads(before_); }
    Threads(const Threads&) = delete;
    Threads& operator=(const Threads&) = delete;

  private:
    int before_;
};

/// The settings of the environment, but with these instructions.
inline BackendSettings settings_with(CpuInstructions instructions) {
    BackendSettings settings = backend_settings_from_environment();
    settings.cpu_instructions = instructions;
    return settings;
}

/// Instruction sets of this machine beyond AVX2.
inline std::vector<CpuInstructions> wider_instruction_sets() {
    std::vector<CpuInstructions> sets;
    if (__builtin_cpu_supports("x86-64-v4")) sets.push_back(CpuInstructions::avx512);
    if (cpu::tiles::amx_usable()) sets.push_back(CpuInstructions::amx);
    return sets;
}

/// Whether two packed host tensors hold the same bytes.
inline bool same_bits(const Tensor& a, const Tensor& b) {
    return a.bytes() == b.bytes() && std::memcmp(a.raw(), b.raw(), a.bytes()) == 0;
}

}  // namespace drover::test
