#include "run/busy_machine.h"

#include <fmt/format.h>
#include <strings.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <thread>

namespace drover {
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
