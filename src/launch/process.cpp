#include "launch/process.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <optional>

#include "core/error.h"
#include "launch/child.h"
#include "launch/machine.h"
#include "launch/signals.h"
#include "launch/tee.h"

namespace drover {
namespace {

static_assert(end_signal_of_jobs == SIGUSR2);

void copy_variable(const char* from, const char* to) {
    if (const char* value = std::getenv(from)) setenv(to, value, 1);
}

/// Sets torchrun's variables, overriding those that counted nodes for the launcher.
void set_environment() {
    copy_variable("OMPI_COMM_WORLD_RANK", "RANK");
    copy_variable("OMPI_COMM_WORLD_SIZE", "WORLD_SIZE");
    copy_variable("OMPI_COMM_WORLD_LOCAL_RANK", "LOCAL_RANK");
    copy_variable("OMPI_COMM_WORLD_LOCAL_SIZE", "LOCAL_WORLD_SIZE");
    const char* together = std::getenv("LOCAL_WORLD_SIZE");
    const int processes = together == nullptr ? 1 : std::atoi(together);
    setenv("OMP_NUM_THREADS", std::to_string(threads_per_process(processes)).c_str(), 0);
}

/// Programs get the LD_PRELOAD from before the launcher prepended its library.
void take_out(const std::string& library) {
    const char* loaded = std::getenv("LD_PRELOAD");
    if (library.empty() || loaded == nullptr) return;
    if (loaded == library)
        unsetenv("LD_PRELOAD");
    else if (const std::string text = loaded; text.starts_with(library + ":"))
        setenv("LD_PRELOAD", text.substr(library.size() + 1).c_str(), 1);
}

/// Ends this process with the signal that ended its program, so that mpirun reports it; without a second core
/// file.
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

/// The program of this process, and its output.
class Program {
  public:
    Program(LaunchLoop& loop, const std::vector<std::string>& words, const ProcessSettings& settings)
        : child_({.file = find(words.front()),
                  .words = words,
                  .captured = !settings.logs.empty(),
                  .end_signal = SIGKILL}) {
        if (settings.logs.empty()) return;
        const char* rank = std::getenv("RANK");
        const std::filesystem::path folder =
            settings.logs / fmt::format("rank.{}", rank == nullptr ? "0" : rank);
        output_.emplace(loop, child_.output(), folder / "stdout", settings.files_only ? -1 : STDOUT_FILENO);
        errors_.emplace(loop, child_.errors(), folder / "stderr", settings.files_only ? -1 : STDERR_FILENO);
    }

    /// The program has its own group: mpirun signals this process's group, which would reach it too.
    void signal(int number) const { child_.signal_group(number); }
    int ended_by() const { return child_.ended_by(); }
    std::optional<int> status() {
        const std::optional<int> status = child_.status();
        for (std::optional<Stream>* stream : {&output_, &errors_})
            while (status && *stream && (*stream)->reader.read_on()) continue;
        return status;
    }

  private:
    struct Stream {
        Stream(LaunchLoop& loop, FileDescriptor& pipe, const std::filesystem::path& file, int shown_on)
            : log(file), reader(loop, pipe, [this, shown_on](std::string_view bytes) {
                  log.write(bytes);
                  if (shown_on >= 0) write_all(shown_on, bytes);
              }) {}
        LaunchLog log;
        PipeReader reader;
    };

    static std::filesystem::path find(const std::string& program) {
        const auto file = find_program(program);
        if (!file)
            throw Error(fmt::format("The program {} does not exist, or may not be run.", program),
                        "It must be on every machine of the job.");
        return *file;
    }

    LaunchChild child_;
    std::optional<Stream> output_, errors_;
};

}  // namespace

int run_launch_process(const std::vector<std::string>& words, const ProcessSettings& settings) {
    if (words.empty()) throw UsageError("No program is given.", "drover launch starts this command.");
    const pid_t daemon = getppid();
    take_out(settings.preloaded);
    set_environment();
    LaunchLoop loop;
    LaunchSignals signals(loop);
    Program program(loop, words, settings);
    bool end_asked = false;
    std::optional<std::chrono::steady_clock::time_point> alone_since;
    while (!program.status()) {
        loop.wait(std::chrono::seconds(1));
        for (const int number : signals.take()) {
            if (number != end_signal_of_jobs)
                program.signal(number);
            else if (!std::exchange(end_asked, true))  // the launcher repeats it in case it came too early
                program.signal(SIGTERM);
        }
        if (getppid() == daemon) continue;
        const auto now = std::chrono::steady_clock::now();
        if (!alone_since) program.signal(SIGTERM);
        if (now > alone_since.value_or(now) + std::chrono::seconds(3)) program.signal(SIGKILL);
        if (!alone_since) alone_since = now;
    }
    if (program.ended_by() != 0) end_by(program.ended_by());
    return *program.status();
}

}  // namespace drover
