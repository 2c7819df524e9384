#include "app/launch_process.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdlib>

#include "app/launch_child.h"
#include "app/launch_machine.h"
#include "core/error.h"

namespace drover {
namespace {

static_assert(end_signal_of_jobs == SIGUSR2);

void copy_variable(const char* from, const char* to) {
    if (const char* value = std::getenv(from)) setenv(to, value, 1);
}

/// torchrun's names, also over those that counted nodes for the launcher.
void set_environment() {
    copy_variable("OMPI_COMM_WORLD_RANK", "RANK");
    copy_variable("OMPI_COMM_WORLD_SIZE", "WORLD_SIZE");
    copy_variable("OMPI_COMM_WORLD_LOCAL_RANK", "LOCAL_RANK");
    copy_variable("OMPI_COMM_WORLD_LOCAL_SIZE", "LOCAL_WORLD_SIZE");
    const char* together = std::getenv("LOCAL_WORLD_SIZE");
    const int processes = together == nullptr ? 1 : std::atoi(together);
    setenv("OMP_NUM_THREADS", std::to_string(threads_per_process(processes)).c_str(), 0);
}

/// Ends this process as its program was ended, so that mpirun reports it as such; without a second core file.
[[noreturn]] void end_by(int signal_number) {
    constexpr rlimit no_core{.rlim_cur = 0, .rlim_max = 0};
    setrlimit(RLIMIT_CORE, &no_core);
    signal(signal_number, SIG_DFL);
    sigset_t only;
    sigemptyset(&only);
    sigaddset(&only, signal_number);
    raise(signal_number);
    sigprocmask(SIG_UNBLOCK, &only, nullptr);
    _exit(128 + signal_number);
}

}  // namespace

int run_launch_process(const std::vector<std::string>& words) {
    if (words.empty()) throw UsageError("No program is given.", "drover launch starts this command.");
    const pid_t daemon = getppid();
    set_environment();
    sigset_t watched;
    sigemptyset(&watched);
    for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCHLD})
        sigaddset(&watched, number);
    sigprocmask(SIG_BLOCK, &watched, nullptr);
    const auto file = find_program(words.front());
    if (!file)
        throw Error(fmt::format("The program {} is not there, or may not be run.", words.front()),
                    "It must be on every machine of the job.");
    // Its group is its own: mpirun signals the group of this process, and would reach it too.
    LaunchChild program({.file = *file, .words = words, .end_signal = SIGKILL});
    constexpr timespec a_moment{.tv_sec = 1, .tv_nsec = 0};
    bool end_asked = false;
    int seconds_alone = 0;
    while (!program.status()) {
        const int number = sigtimedwait(&watched, nullptr, &a_moment);
        if (number == end_signal_of_jobs) {
            // The launcher repeats it, lest it come before the program was started.
            if (!std::exchange(end_asked, true)) program.signal_group(SIGTERM);
        } else if (number > 0 && number != SIGCHLD) {
            program.signal_group(number);
        } else if (number < 0 && getppid() != daemon) {
            constexpr int patience = 3;
            program.signal_group(++seconds_alone < patience ? SIGTERM : SIGKILL);
        }
    }
    if (program.ended_by() != 0) end_by(program.ended_by());
    return *program.status();
}

}  // namespace drover
