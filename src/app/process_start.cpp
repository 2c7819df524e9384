#include "app/process_start.h"

#include <fcntl.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>

#include "core/this_process.h"
#include "core/words.h"

namespace drover {
namespace {

/// How often a waiting thread polls before it sleeps, with a pause instruction each time: some tens of
/// microseconds. bench/cpu.md has the measurements.
constexpr const char* spin_count = "2000";

bool computes(const char* command) {
    constexpr std::array<std::string_view, 5> commands{"run_clm", "sft", "generate", "eval", "bench"};
    const std::string written = with_underscores(command == nullptr ? "" : command);
    return std::find(commands.begin(), commands.end(), written) != commands.end();
}

}  // namespace

void open_standard_descriptors() {
    for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
        if (fcntl(descriptor, F_GETFD) != -1 || errno != EBADF) continue;
        // open() returns the lowest free descriptor, which is this one: those below it are open.
        if (open("/dev/null", O_RDWR) != descriptor) std::abort();
    }
}

void choose_thread_waits(char** arguments) {
    for (const char* name : {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"})
        if (std::getenv(name) != nullptr) return;
    if (arguments[0] == nullptr || !computes(arguments[1])) return;
    if (getauxval(AT_BASE) == 0) return;  // the dynamic linker was run directly, and would be restarted
    // Use its own name: started as /proc/self/exe it would be listed as "exe".
    const std::filesystem::path program = program_path();
    if (program.empty()) return;
    setenv("GOMP_SPINCOUNT", spin_count, 1);
    execv(program.c_str(), arguments);
    unsetenv("GOMP_SPINCOUNT");  // the threads of this process keep spinning
}

}  // namespace drover
