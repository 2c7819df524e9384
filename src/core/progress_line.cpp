#include "core/progress_line.h"

#include <unistd.h>

#include <cstdio>

#include "core/console.h"

namespace drover {

ProgressLine::ProgressLine()
    : on_terminal_(isatty(STDERR_FILENO) == 1), next_time_(on_terminal_ ? 0.2 : 10) {}

void ProgressLine::show(const std::function<std::string()>& text) {
    const double now = seconds();
    if (now < next_time_) return;
    next_time_ = now + (on_terminal_ ? 0.2 : 10);
    print_log(stderr, "{}{}{}", on_terminal_ ? "\r" : "", text(), on_terminal_ ? "\x1b[K" : "\n");
}

void ProgressLine::finish(std::string_view text) {
    print_log(stderr, "{}{}\n", on_terminal_ ? "\r\x1b[K" : "", text);
}

}  // namespace drover
