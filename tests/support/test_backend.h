#pragma once

#include <cstdlib>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "support/golden.h"

namespace drover::test {

/// Whether the tests should run on a GPU: DROVER_TEST_DEVICE=cuda.
inline bool tests_use_cuda() {
    const char* device = std::getenv("DROVER_TEST_DEVICE");
    return device != nullptr && std::string_view(device) == "cuda";
}

/// The GPU that tests use in this process, 0 unless it is one of several ranks.
inline int& test_gpu() {
    static int ordinal = 0;
    return ordinal;
}

/// The backend that tests run on: the CPU unless DROVER_TEST_DEVICE says otherwise.
/// DROVER_TEST_SHARED_MEMORY_KB limits a GPU's blocks unless the settings do.
inline std::unique_ptr<Backend> make_test_backend(
    BackendSettings settings = backend_settings_from_environment()) {
    const char* limit = std::getenv("DROVER_TEST_SHARED_MEMORY_KB");
    if (limit != nullptr && !settings.gpu_shared_memory_kb) settings.gpu_shared_memory_kb = std::atoi(limit);
    return tests_use_cuda() ? make_cuda_backend(test_gpu(), settings) : make_cpu_backend(settings);
}

/// The types in which that backend can compute matrix products and everything between them.
inline std::vector<DType> activation_types() {
    if (tests_use_cuda()) return {DType::f32, DType::bf16, DType::f16};
    return {DType::f32, DType::bf16};
}

/// Whether that backend multiplies experts in FP8 with scales of blocks. On a GPU only code for Hopper does;
/// DROVER_TEST_CODE=ptx says that the module has none.
inline bool multiplies_experts_in_blocks() {
    const char* code = std::getenv("DROVER_TEST_CODE");
    return !tests_use_cuda() || code == nullptr || std::string_view(code) != "ptx";
}

/// Writes elements of an fp32 tensor on any device, from index `first`.
void overwrite(const Tensor& tensor, std::int64_t first, std::span<const float> elements);

}  // namespace drover::test
