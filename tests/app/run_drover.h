#pragma once

#include <sys/wait.h>

#include <cstdio>
#include <string>

namespace drover::test {

struct Outcome {
    int exit_code = -1;
    std::string output;  ///< stdout and stderr
};

/// Runs the real binary as a user would, in `folder`.
inline Outcome run_in(const std::string& folder, const std::string& arguments) {
    Outcome outcome;
    FILE* pipe = popen(
        ("cd '" + folder + "' && " + std::string(DROVER_BINARY) + " " + arguments + " 2>&1").c_str(), "r");
    char buffer[4096];
    while (const std::size_t count = fread(buffer, 1, sizeof buffer, pipe))
        outcome.output.append(buffer, count);
    const int status = pclose(pipe);
    outcome.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return outcome;
}

inline Outcome run(const std::string& arguments) {
    return run_in(".", arguments);
}

}  // namespace drover::test
