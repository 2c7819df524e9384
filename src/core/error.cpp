#include "core/error.h"

#include <execinfo.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>

namespace drover {
namespace {

std::string one_message(std::string_view cause, std::string_view remedy) {
    std::string message(cause);
    if (!remedy.empty()) {
        message += ' ';
        message += remedy;
    }
    return message;
}

}  // namespace

Error::Error(std::string_view cause, std::string_view remedy)
    : std::runtime_error(one_message(cause, remedy)), cause_(cause), remedy_(remedy) {}

void bug(std::string_view what, CodePlace where) {
    std::fprintf(stderr, "drover: internal error: %.*s\n  at %s:%d in %s\n", static_cast<int>(what.size()),
                 what.data(), where.file, where.line, where.function);
    std::array<void*, 64> frames;
    backtrace_symbols_fd(frames.data(), backtrace(frames.data(), static_cast<int>(frames.size())),
                         STDERR_FILENO);
    std::abort();
}

}  // namespace drover
