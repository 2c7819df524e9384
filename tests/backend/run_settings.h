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

/// An environment variable for the life of the object.
class ForcedVariable {
  public:
    ForcedVariable(const char* name, const char* value) : name_(name) {
        if (const char* before = std::getenv(name)) before_ = before;
        setenv(name, value, 1);
    }
    ~ForcedVariable() {
        if (before_)
            setenv(name_, before_->c_str(), 1);
        else
            unsetenv(name_);
    }
    ForcedVariable(const ForcedVariable&) = delete;
    ForcedVariable& operator=(const ForcedVariable&) = delete;

  private:
    const char* name_;
    std::optional<std::string> before_;
};

class ForcedInstructionSet : ForcedVariable {
  public:
    explicit ForcedInstructionSet(const char* name) : ForcedVariable("DROVER_CPU_ISA", name) {}
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
