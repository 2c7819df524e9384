// One process of a job started by `drover launch`, for the tests in ..: launch_program <what to do>.

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "comm/mpi/mpi_world.h"

/// Called by the address sanitizer, in builds with it. Open MPI leaks memory.
extern "C" const char* __asan_default_options();
const char* __asan_default_options() {
    return "detect_leaks=0";
}

namespace drover {
namespace {

/// Prints its rank, the number of ranks, and the sum of all ranks' numbers counted from 1.
int sum() {
    std::string line;
    const auto world = make_mpi_world();
    run_rank(*world, [&](World& all) {
        std::vector<int> ranks;
        for (int rank = 0; rank < all.size(); ++rank) ranks.push_back(rank);
        const auto everyone = all.make_communicator("data", ranks);
        float number = static_cast<float>(all.rank() + 1);
        everyone->all_reduce({}, Tensor::of(&number, {1}), Reduction::sum);
        line = fmt::format("rank {} of {}: sum {}", all.rank(), all.size(), number);
    });
    fmt::print("{}\n", line);
    return 0;
}

/// Waits for SIGTERM, then takes a while to end, like a program that saves.
int wait() {
    sigset_t watched;
    sigemptyset(&watched);
    sigaddset(&watched, SIGTERM);
    sigprocmask(SIG_BLOCK, &watched, nullptr);
    fmt::print("rank {} is process {}\n", std::getenv("RANK"), getpid());
    std::fflush(stdout);
    int number = 0;
    sigwait(&watched, &number);
    usleep(1'500'000);  // more than the second that mpirun itself would give
    fmt::print("rank {} has saved\n", std::getenv("RANK"));
    return 0;
}

/// Joins the world, then waits as above.
int hold() {
    const auto world = make_mpi_world();
    int status = 0;
    run_rank(*world, [&](World&) { status = wait(); });
    return status;
}

/// Prints the variables that a torchrun program uses.
int tell() {
    for (const char* name :
         {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "OMP_NUM_THREADS", "NOTE"}) {
        const char* value = std::getenv(name);
        fmt::print("{}{}={}", name == std::string("RANK") ? "" : " ", name, value == nullptr ? "" : value);
    }
    fmt::print("\n");
    return 0;
}

}  // namespace
}  // namespace drover

int main(int argc, char** argv) {
    const std::string what = argc > 1 ? argv[1] : "";
    if (what == "sum") return drover::sum();
    if (what == "wait") return drover::wait();
    if (what == "hold") return drover::hold();
    if (what == "tell") return drover::tell();
    if (what == "fail") return std::getenv("RANK") == std::string("1") ? 7 : 0;
    return 2;
}
