#include "run/program_processes.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "run/messages.h"

namespace drover {
namespace {

/// State that lives until the program ends.
struct Program {
    std::unique_ptr<World> world;  ///< null: not started, or a single process
    Processes processes;
    pid_t process = 0;  ///< that started it; its children only inherit it
};

/// Never destroyed, so that it can be used until the very end of the program.
Program& program() {
    static auto* const only = new Program;
    return *only;
}

void check_same_call(const ProcessGroup& ranks, std::string_view call) {
    const std::vector<std::string> calls = ranks.gather(call);
    if (std::all_of(calls.begin(), calls.end(), [&](const std::string& other) { return other == calls[0]; }))
        return;
    std::string text;
    for (std::size_t rank = 0; rank < calls.size(); ++rank)
        text += fmt::format("{}rank {} to {}", rank == 0 ? "" : ", ", rank, calls[rank]);
    throw FailureOfRank(fmt::format("The processes made different calls: {}.", text),
                        "All processes must make the same calls of a Trainer in the same order, whatever "
                        "else they do.",
                        1, ranks.is_first());
}

/// The launcher ends all processes as soon as one has failed, so errors are shown before the other processes
/// learn of them. Trainers are not destroyed: they may be in the middle of a collective.
[[noreturn]] void end_all(const LaunchEnvironment& launch) {
    const std::exception_ptr problem = std::current_exception();
    const QuietEnd end = show_failure(launch.rank);
    std::fflush(nullptr);
    if (const Program& own = program(); own.world != nullptr) {
        try {
            std::rethrow_exception(problem);
        } catch (const AgreedError&) {
            try {
                own.processes.group.meet();
            } catch (const Error&) {
                // Another process has failed in the meantime and has reported it.
            }
        } catch (const std::exception& error) {
            own.world->fail(error.what());
        }
    }
    std::_Exit(end.exit_code());
}

/// The processes end the program together. One that exits with a nonzero status does not wait for the others.
void leave(int status, void*) {
    Program& own = program();
    if (own.world == nullptr || own.process != getpid()) return;
    if (status != 0) {
        own.world->fail(fmt::format("it ended with exit code {}.", status));
        return;
    }
    try {
        check_same_call(own.processes.group, "the end of the program");
        own.processes = {};
        own.world->close();
        own.process = 0;  // a Trainer that outlives main() may still access the world
    } catch (...) {
        end_all(read_launch_environment());
    }
}

void begin(Program& own, const LaunchEnvironment& launch, const WorldOptions& waits) {
    try {
        own.world = begin_world(launch, waits);
    } catch (const QuietEnd& end) {
        std::fflush(nullptr);
        std::_Exit(end.exit_code());
    } catch (const Error& error) {
        show_end(error);
        std::fflush(nullptr);
        std::_Exit(error.exit_code());
    }
    own.process = getpid();
    own.processes = find_processes(*own.world);
    on_exit(leave, nullptr);
}

}  // namespace

const Processes& program_processes(const WorldOptions& waits) {
    Program& own = program();
    const LaunchEnvironment launch = read_launch_environment();
    if (!launch.has_others()) return own.processes;
    if (own.world == nullptr) begin(own, launch, waits);
    return own.processes;
}

void check_waits(const Processes& processes, const WorldOptions& waits) {
    if (processes.alone()) return;
    const WorldOptions& first = processes.world->options();
    if (first.deadline != waits.deadline || first.comm_debug != waits.comm_debug)
        throw Error("ddp_timeout or comm_debug is another than that of the program's first Trainer.",
                    "Give all Trainers of a program the same ones.");
}

void in_all_processes(std::string_view call, const std::function<void()>& work) {
    const LaunchEnvironment launch = read_launch_environment();
    if (!launch.has_others()) return work();
    try {
        if (program().world != nullptr) check_same_call(program().processes.group, call);
        work();
    } catch (...) {
        end_all(launch);
    }
}

}  // namespace drover
