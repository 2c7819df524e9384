#include "run/choose_backend.h"

#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <future>
#include <system_error>
#include <thread>
#include <vector>

#include "backend/backend.h"
#include "core/console.h"
#include "core/error.h"
#include "run/settings/run_settings.h"

namespace drover {
namespace {

/// OpenMP ends the program if the system refuses one of its threads, so this tries to start them first.
void check_threads() {
    const auto wanted = static_cast<std::size_t>(omp_get_max_threads());
    std::promise<void> gate;
    const std::shared_future<void> open(gate.get_future());
    std::vector<std::thread> threads;  // in addition to this one
    std::string refusal;
    try {
        while (threads.size() + 1 < wanted) threads.emplace_back([open] { open.wait(); });
    } catch (const std::system_error& error) {
        refusal = error.what();
    }
    gate.set_value();
    for (std::thread& thread : threads) thread.join();
    if (refusal.empty()) return;
    throw Error(fmt::format("Of {} threads, the system started {}: {}.", wanted, threads.size() + 1, refusal),
                "Use fewer (--threads or OMP_NUM_THREADS), or raise the limit of processes (`ulimit -u`, or "
                "pids.max of the container) or of address space (`ulimit -v`).");
}

std::unique_ptr<Backend> make_checked_cpu_backend(const BackendSettings& settings) {
    check_threads();
    return make_cpu_backend(settings);
}

}  // namespace

std::unique_ptr<Backend> make_chosen_backend(std::string_view device, int place,
                                             const BackendSettings& settings) {
    const auto on_gpu = [&] { return make_cuda_backend(place % std::max(1, cuda_device_count()), settings); };
    if (device == "cuda") return on_gpu();
    if (device == "cpu" || cuda_device_count() == 0) return make_checked_cpu_backend(settings);
    try {
        return on_gpu();
    } catch (const Error& error) {
        print_log(stderr, "This machine has a GPU, but the run takes the CPU. {}\n", error.cause());
        return make_checked_cpu_backend(settings);
    }
}

std::unique_ptr<Backend> make_process_backend(const DeviceSettings& settings, const MachinePlace& machine) {
    if (settings.threads)
        omp_set_num_threads(static_cast<int>(*settings.threads));
    else if (machine.ranks > 1)
        omp_set_num_threads(machine.processors);
    BackendSettings backend_settings = backend_settings_from_environment();
    backend_settings.plain_attention = settings.plain_attention;
    std::unique_ptr<Backend> backend = make_chosen_backend(settings.device, machine.rank, backend_settings);
    backend->use_tf32(settings.tf32);
    return backend;
}

}  // namespace drover
