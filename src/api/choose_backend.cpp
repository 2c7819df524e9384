#include "api/choose_backend.h"

#include <fmt/format.h>
#include <omp.h>

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

std::unique_ptr<Backend> make_process_backend(const Arguments& arguments, const MachinePlace& machine) {
    if (const auto threads = arguments.optional_integer("threads"))
        omp_set_num_threads(static_cast<int>(*threads));
    else if (machine.ranks > 1)
        omp_set_num_threads(machine.processors);
    std::unique_ptr<Backend> backend = make_chosen_backend(arguments.text("device"), machine.rank);
    backend->use_tf32(arguments.optional_flag("tf32").value_or(false));
    return backend;
}

}  // namespace drover
