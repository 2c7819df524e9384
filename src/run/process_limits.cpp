#include "run/process_limits.h"

#include <fmt/format.h>
#include <omp.h>
#include <strings.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <thread>

#include "core/machine_memory.h"
#include "core/number_text.h"
#include "run/settings/run_settings.h"
#include "train/engine/memory_advice.h"
#include "train/engine/train_engine.h"

namespace drover {

std::size_t ProcessLimits::device_bytes() const {
    const bool on_host = backend_.device() == Device::cpu;
    const int sharing = on_host ? processes_.machine.ranks : mesh_.ranks_of_gpu();
    const std::size_t share = backend_.available_bytes() / static_cast<std::size_t>(sharing);
    return on_host ? std::min(share, address_space_left().value_or(share)) : share;
}

double ProcessLimits::fraction() const {
    return settings_.device.memory_fraction.value_or(1);
}

std::size_t ProcessLimits::allowed_bytes() const {
    return static_cast<std::size_t>(static_cast<double>(device_bytes()) * fraction());
}

double ProcessLimits::host_bytes() const {
    const std::size_t share = usable_memory() / static_cast<std::size_t>(processes_.machine.ranks);
    return static_cast<double>(std::min(share, address_space_left().value_or(share)));
}

std::size_t ProcessLimits::allowed_host_bytes() const {
    constexpr double left_to_others = 0.1;
    return static_cast<std::size_t>(host_bytes() * fraction() * (1 - left_to_others));
}

std::uint64_t ProcessLimits::checkpoint_buffer(const TrainEngine& engine) const {
    if (const auto gigabytes = settings_.checkpoints.buffer_gigabytes)
        return static_cast<std::uint64_t>(*gigabytes * (1 << 30));
    const double host = host_bytes();
    const std::size_t planned = backend_.device() == Device::cpu ? engine.memory_plan().total : 0;
    const auto taken = static_cast<double>(planned + engine.host_memory_plan().total);
    return static_cast<std::uint64_t>(std::max(0.0, std::min(host / 4, host * fraction() - taken)));
}

double ProcessLimits::peak_of_all(double own) const {
    const double share = backend_.device() == Device::cpu
                             ? processes_.machine.own_share(omp_get_max_threads())
                             : 1.0 / mesh_.ranks_of_gpu();
    return own * share * processes_.group.size();
}

void ProcessLimits::check(const std::vector<RankMemory>& planned, const ModelConfig& config,
                          const TrainEngineOptions& options, std::int64_t accumulation_steps,
                          std::int64_t sharing) const {
    const int largest = largest_rank(planned);
    const std::size_t needed = planned[static_cast<std::size_t>(largest)].device.total;
    const std::size_t allowed = allowed_bytes();
    std::size_t host = 0;
    for (const RankMemory& rank : planned) host = std::max(host, rank.host.total);
    if (host > allowed_host_bytes())
        throw Error(
            fmt::format(
                "The offloaded optimizer needs {} of the host's memory in each process, which may take {}.",
                bytes_text(host), bytes_text(allowed_host_bytes())),
            "Use --moments_dtype bfloat16 or --optim adafactor, or shard it over more devices.");
    if (needed <= allowed) return;
    throw Error(
        fmt::format("The run needs {}{}, but may take {} of the {} that the device has for it{}.",
                    bytes_text(needed),
                    processes_.alone()    ? ""
                    : planned.size() == 1 ? " in each process"
                                          : fmt::format(" in pipeline rank {}, the largest", largest),
                    bytes_text(allowed), bytes_text(device_bytes()),
                    backend_.device() == Device::cpu ? fmt::format(": {}", memory_limits_text()) : ""),
        memory_advice(config, options, accumulation_steps, backend_, *mesh_,
                      {.device_bytes = allowed, .host_bytes = allowed_host_bytes()}, sharing));
}

std::int64_t ProcessLimits::fitting_rows(const ModelConfig& config, const TrainEngineOptions& options) const {
    return largest_fitting_rows(config, options, backend_, *mesh_,
                                {.device_bytes = allowed_bytes(), .host_bytes = allowed_host_bytes()});
}

std::string time_estimate(double tokens, std::int64_t active_parameters, double peak, int processes,
                          double bubble) {
    constexpr double usual_share_of_peak = 0.7;
    const double seconds =
        6 * static_cast<double>(active_parameters) * tokens / (usual_share_of_peak * peak * (1 - bubble));
    const std::string time = seconds < 120    ? fmt::format("{:.0f} s", std::ceil(seconds))
                             : seconds < 7200 ? fmt::format("{:.0f} min", seconds / 60)
                                              : fmt::format("{:.1f} h", seconds / 3600);
    return fmt::format(
        "The updates will take about {} at {:.0f} % of {} {:.0f} GFLOP/s{}; evaluations and checkpoints come "
        "on top.",
        time, 100 * usual_share_of_peak,
        processes == 1 ? "this machine's" : fmt::format("{} processes'", processes), peak / 1e9,
        bubble > 0 ? " outside the pipeline's bubble" : "");
}

namespace {

/// Threads of other programs that are runnable now; the fourth number of /proc/loadavg counts all runnable
/// threads.
int others_running() {
    std::ifstream file("/proc/loadavg");
    double minute = 0, minutes = 0, quarter = 0;
    int running = 1;
    file >> minute >> minutes >> quarter >> running;
    return std::max(0, running - 1);
}

/// As OpenMP has read it: GOMP_SPINCOUNT takes precedence, and main() sets it if the user sets neither.
bool threads_spin() {
    const char* count = std::getenv("GOMP_SPINCOUNT");
    const char* policy = std::getenv("OMP_WAIT_POLICY");
    return count == nullptr && (policy == nullptr || strcasecmp(policy, "passive") != 0);
}

}  // namespace

std::string busy_machine_hint(int threads) {
    if (threads < 2 || !threads_spin()) return {};
    int others = std::numeric_limits<int>::max();  // a single sample may catch a thread about to finish
    for (int look = 0; look < 3; ++look) {
        others = std::min(others, others_running());
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    const int processors = static_cast<int>(std::thread::hardware_concurrency());
    if (others == 0 || 2 * others < processors) return {};
    return fmt::format(
        "Other programs keep this machine busy ({} of their threads run on its {} processors): with "
        "OMP_WAIT_POLICY=passive, steps are shorter while they do.",
        others, processors);
}

}  // namespace drover
