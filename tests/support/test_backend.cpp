#include "support/test_backend.h"

#include "support/device_memory.h"

namespace drover::test {

Backend& device_access() {
    static const std::unique_ptr<Backend> backend = make_cuda_backend(test_gpu());
    backend->synchronize({});
    return *backend;
}

void overwrite(const Tensor& tensor, std::int64_t first, std::span<const float> elements) {
    const auto count = static_cast<std::int64_t>(elements.size());
    const Tensor target = tensor.view({tensor.numel()}).rows(first, count);
    if (target.device() == Device::cpu) {
        std::copy(elements.begin(), elements.end(), target.data<float>());
        return;
    }
    Backend& access = device_access();
    access.copy(access.main_stream(), Tensor::of(elements.data(), {count}), target);
    access.synchronize({});
}

}  // namespace drover::test
