#include "launch/child.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "core/error.h"

namespace drover {
namespace {

struct Pipe {
    FileDescriptor reading, writing;
};

Pipe make_pipe() {
    std::array<int, 2> ends{};
    require(pipe2(ends.data(), O_CLOEXEC) == 0, "a pipe that cannot be made");
    return {FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}

/// Runs in the child. Makes only calls that are allowed between fork and exec.
[[noreturn]] void become(const LaunchChild::Settings& settings, char* const* words, char* const* variables,
                         pid_t parent, int output, int errors, int problem) {
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, settings.end_signal);
    if (getppid() != parent) _exit(127);
    for (const int number : {SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGPIPE, SIGUSR1, SIGUSR2})
        ::signal(number, number == settings.ignored_signal ? SIG_IGN : SIG_DFL);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    const int nothing = open("/dev/null", O_RDONLY);
    if (nothing >= 0) dup2(nothing, STDIN_FILENO);
    if (output >= 0) dup2(output, STDOUT_FILENO);
    if (errors >= 0) dup2(errors, STDERR_FILENO);
    execve(settings.file.c_str(), words, variables);
    const int reason = errno;
    [[maybe_unused]] const ssize_t written = write(problem, &reason, sizeof reason);
    _exit(127);
}

/// This program's environment with the given variables replaced. Points into both.
std::vector<char*> environment_with(const std::vector<std::string>& given) {
    std::vector<char*> variables;
    for (char** entry = environ; *entry != nullptr; ++entry) {
        const std::string_view name =
            std::string_view(*entry).substr(0, std::string_view(*entry).find('=') + 1);
        if (std::none_of(given.begin(), given.end(),
                         [&](const std::string& other) { return other.starts_with(name); }))
            variables.push_back(*entry);
    }
    for (const std::string& variable : given) variables.push_back(const_cast<char*>(variable.c_str()));
    variables.push_back(nullptr);
    return variables;
}

bool is_program(const std::filesystem::path& file) {
    std::error_code ignored;
    return std::filesystem::is_regular_file(file, ignored) && access(file.c_str(), X_OK) == 0;
}

}  // namespace

std::optional<std::filesystem::path> find_program(const std::string& program) {
    if (program.find('/') != std::string::npos)
        return is_program(program) ? std::optional<std::filesystem::path>(program) : std::nullopt;
    const char* path = std::getenv("PATH");
    std::string_view folders = path == nullptr ? "/usr/local/bin:/usr/bin:/bin" : path;
    while (true) {
        const std::size_t colon = folders.find(':');
        const std::string_view folder = folders.substr(0, colon);
        const std::filesystem::path file = std::filesystem::path(folder.empty() ? "." : folder) / program;
        if (is_program(file)) return file;
        if (colon == std::string_view::npos) return std::nullopt;
        folders.remove_prefix(colon + 1);
    }
}

LaunchChild::LaunchChild(const Settings& settings) {
    std::vector<char*> words;
    for (const std::string& word : settings.words) words.push_back(const_cast<char*>(word.c_str()));
    words.push_back(nullptr);
    std::vector<char*> variables = environment_with(settings.variables);
    Pipe output, errors, problem = make_pipe();
    if (settings.captured) {
        output = make_pipe();
        errors = make_pipe();
    }
    const pid_t parent = getpid();
    process_ = fork();
    if (process_ == 0)
        become(settings, words.data(), variables.data(), parent, output.writing.number(),
               errors.writing.number(), problem.writing.number());
    if (process_ < 0)
        throw Error(
            fmt::format("No process for {} could be made: {}.", settings.file.native(), std::strerror(errno)),
            "The system's limits of processes and memory must allow it.");
    problem.writing.close();
    int reason = 0;
    if (read(problem.reading.number(), &reason, sizeof reason) == sizeof reason) {
        waitpid(process_, nullptr, 0);
        process_ = -1;
        throw Error(
            fmt::format("{} could not be started: {}.", settings.file.native(), std::strerror(reason)),
            "It must be a program of this machine.");
    }
    output_ = std::move(output.reading);
    errors_ = std::move(errors.reading);
    for (const FileDescriptor* end : {&output_, &errors_})
        if (end->is_open()) fcntl(end->number(), F_SETFL, O_NONBLOCK);
}

LaunchChild::~LaunchChild() {
    if (process_ > 0 && !status()) {
        signal(SIGKILL);
        waitpid(process_, nullptr, 0);
    }
}

void LaunchChild::signal(int number) const {
    if (!status_) kill(process_, number);
}

void LaunchChild::signal_group(int number) const {
    if (!status_) kill(-process_, number);
}

std::optional<int> LaunchChild::status() {
    int status = 0;
    if (status_ || waitpid(process_, &status, WNOHANG) != process_) return status_;
    if (WIFSIGNALED(status)) ended_by_ = WTERMSIG(status);
    status_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return status_;
}

}  // namespace drover
