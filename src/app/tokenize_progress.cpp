#include "app/tokenize_progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "core/console.h"

namespace drover {
namespace {

std::string speed_text(const TokenStreamProgress& progress, double seconds) {
    const double time = std::max(seconds, 1e-6);
    return fmt::format("{} rows of text ({:.0f} rows/s, {:.1f} MB/s), {} tokens", progress.text_rows,
                       static_cast<double>(progress.text_rows) / time,
                       static_cast<double>(progress.text_bytes) / 1e6 / time, progress.tokens);
}

}  // namespace

TokenizeProgress::TokenizeProgress()
    : on_terminal_(isatty(STDERR_FILENO) == 1), next_time_(on_terminal_ ? 0.2 : 10) {}

void TokenizeProgress::show(const TokenStreamProgress& progress) {
    const double seconds = watch_.seconds();
    if (seconds < next_time_) return;
    next_time_ = seconds + (on_terminal_ ? 0.2 : 10);
    print_log(stderr, "{}{}{}", on_terminal_ ? "\r" : "", speed_text(progress, seconds),
              on_terminal_ ? "\x1b[K" : "\n");
}

void TokenizeProgress::finish(const TokenStreamProgress& progress) {
    print_log(stderr, "{}{} in {:.1f} s; {} rows to train on, {} tokens dropped\n",
              on_terminal_ ? "\r\x1b[K" : "", speed_text(progress, watch_.seconds()), watch_.seconds(),
              progress.rows, progress.dropped);
}

}  // namespace drover
