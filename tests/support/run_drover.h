#pragma once

#include <sys/wait.h>

#include <cstdio>
#include <string>

namespace drover::test {

struct Outcome {
    int exit_code = -1;
    std::string output;
};

/// Runs a line in a shell in `folder`; returns its standard output.
inline Outcome run_shell(const std::string& line, const std::string& folder = ".") {
    Outcome outcome;
    FILE* pipe = popen(("cd '" + folder + "' && " + line).c_str(), "r");
    char buffer[4096];
    while (const std::size_t count = fread(buffer, 1, sizeof buffer, pipe))
        outcome.output.append(buffer, count);
    const int status = pclose(pipe);
    outcome.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return outcome;
}

/// Runs the real binary as a user would, in `folder`; the arguments go through a shell, so "2>&1" and
/// "2>/dev/null" work.
inline Outcome run_drover(const std::string& arguments, const std::string& folder = ".") {
    return run_shell(std::string(DROVER_BINARY) + " " + arguments, folder);
}

/// The same with stdout and stderr together.
inline Outcome run_in(const std::string& folder, const std::string& arguments) {
    return run_drover(arguments + " 2>&1", folder);
}
inline Outcome run(const std::string& arguments) {
    return run_in(".", arguments);
}

/// How often `part` occurs in a text.
inline std::size_t count_of(const std::string& text, const std::string& part) {
    std::size_t count = 0;
    for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++count;
    return count;
}

}  // namespace drover::test
