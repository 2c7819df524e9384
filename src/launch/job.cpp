#include "launch/job.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <charconv>
#include <thread>

#include "core/error.h"
#include "launch/process.h"

namespace drover {
namespace {

using namespace std::chrono_literals;

std::string first_output_of(const std::filesystem::path& file, const std::vector<std::string>& words) {
    LaunchChild program({.file = file, .words = words, .captured = true});
    LaunchLoop loop;
    std::string text;
    PipeReader output(loop, program.output(), [&](std::string_view bytes) { text += bytes; });
    PipeReader errors(loop, program.errors(), [](std::string_view) {});
    while (program.output().is_open() || program.errors().is_open()) loop.wait(1s);
    return text;
}

}  // namespace

Mpirun find_mpirun() {
    const auto file = find_program("mpirun");
    if (!file)
        throw Error(
            "mpirun, which starts the processes, is not in PATH.",
            "Install Open MPI: apt-get install openmpi-bin (Debian, Ubuntu), dnf install openmpi, or the "
            "module of your cluster.");
    const std::string text = first_output_of(*file, {"mpirun", "--version"});
    constexpr std::string_view name = "(Open MPI) ";
    Mpirun mpirun{.file = *file, .major_version = 0};
    if (const std::size_t place = text.find(name); place != std::string::npos) {
        const std::size_t begin = place + name.size();
        mpirun.version = text.substr(begin, text.find_first_of(" \r\n", begin) - begin);
    }
    std::from_chars(mpirun.version.data(), mpirun.version.data() + mpirun.version.size(),
                    mpirun.major_version);
    if (mpirun.major_version < 4)
        throw Error(
            fmt::format("{} is not Open MPI 4 or newer.", file->native()),
            "drover needs Open MPI: install it (apt-get install openmpi-bin) and put it first in PATH.");
    return mpirun;
}

LaunchJob::LaunchJob(LaunchLoop& loop, const Mpirun& mpirun, const std::vector<std::string>& words,
                     const std::vector<std::string>& variables, LaunchLog* log)
    // The signal may arrive before mpirun is ready for it, so it is ignored until then, and repeated.
    : mpirun_({.file = mpirun.file,
               .words = words,
               .captured = log != nullptr,
               .ignored_signal = end_signal_of_jobs,
               .variables = variables}) {
    if (log == nullptr) return;
    const auto tee = [log](int terminal) {
        return [log, terminal](std::string_view bytes) {
            write_all(terminal, bytes);
            log->write(bytes);
        };
    };
    output_.emplace(loop, mpirun_.output(), tee(STDOUT_FILENO));
    errors_.emplace(loop, mpirun_.errors(), tee(STDERR_FILENO));
}

std::optional<int> LaunchJob::status() {
    enforce_end();
    std::optional<int> status = mpirun_.status();
    if (status && output_) {
        // The last output is in the pipes; a process that outlives mpirun may hold them open.
        while (output_->read_on()) continue;
        while (errors_->read_on()) continue;
    }
    // A launch_process that was still loading was killed by the signal instead of sending SIGTERM.
    if (end_asked_ && status == 128 + end_signal_of_jobs) status = 128 + SIGTERM;
    return status;
}

void LaunchJob::ask_end(std::optional<std::chrono::seconds> patience) {
    if (end_asked_) return;
    end_asked_ = end_repeated_ = Clock::now();
    if (patience) end_due_ = *end_asked_ + *patience;
    mpirun_.signal(end_signal_of_jobs);
}

void LaunchJob::force_end() {
    if (!end_asked_) end_asked_ = Clock::now();
    end_forced_ = Clock::now();
    mpirun_.signal(SIGTERM);
}

void LaunchJob::enforce_end() {
    const Clock::time_point now = Clock::now();
    if (end_forced_) {
        if (now > *end_forced_ + 10s) mpirun_.signal(SIGKILL);
    } else if (end_due_ && now > *end_due_) {
        force_end();
    } else if (end_repeated_ && now < started_ + 15s && now > *end_repeated_ + 1s) {
        // Programs that mpirun had yet to start have missed the signal; the others act on it only once.
        end_repeated_ = now;
        mpirun_.signal(end_signal_of_jobs);
    }
}

}  // namespace drover
