#include "api/choose_backend.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"

namespace drover {

std::unique_ptr<Backend> make_chosen_backend(std::string_view device, int place) {
    const auto on_gpu = [&] { return make_cuda_backend(place % std::max(1, cuda_device_count())); };
    if (device == "cuda") return on_gpu();
    if (device == "cpu" || cuda_device_count() == 0) return make_cpu_backend();
    try {
        return on_gpu();
    } catch (const Error& error) {
        fmt::print(stderr, "This machine has a GPU, but the run takes the CPU. {}\n", error.cause());
        return make_cpu_backend();
    }
}

}  // namespace drover
