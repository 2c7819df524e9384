#pragma once

#include <omp.h>

#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "backend/cpu/tiles/amx_probe.h"
#include "core/tensor.h"

namespace drover::test {

/// Sets the number of threads, and the old one again at the end.
class Threads {
  public:
    explicit Threads(int count) : before_(omp_get_max_threads()) { omp_set_num_threads(count); }
    ~Threads() { omp_set_num_threads(before_); }
    Threads(const Threads&) = delete;
    Threads& operator=(const Threads&) = delete;

  private:
    int before_;
};

/// DROVER_CPU_ISA for the life of the object.
class ForcedInstructionSet {
  public:
    explicit ForcedInstructionSet(const char* name) {
        if (const char* before = std::getenv("DROVER_CPU_ISA")) before_ = before;
        setenv("DROVER_CPU_ISA", name, 1);
    }
    ~ForcedInstructionSet() {
        if (before_)
            setenv("DROVER_CPU_ISA", before_->c_str(), 1);
        else
            unsetenv("DROVER_CPU_ISA");
    }
    ForcedInstructionSet(const ForcedInstructionSet&) = delete;
    ForcedInstructionSet& operator=(const ForcedInstructionSet&) = delete;

  private:
    std::optional<std::string> before_;
};

/// Instruction sets of this machine besides AVX2, as DROVER_CPU_ISA calls them.
inline std::vector<const char*> wider_instruction_sets() {
    std::vector<const char*> names;
    if (__builtin_cpu_supports("x86-64-v4")) names.push_back("avx512");
    if (cpu::tiles::amx_usable()) names.push_back("amx");
    return names;
}

/// Whether two packed host tensors hold the same bytes.
inline bool same_bits(const Tensor& a, const Tensor& b) {
    return a.bytes() == b.bytes() && std::memcmp(a.raw(), b.raw(), a.bytes()) == 0;
}

}  // namespace drover::test
