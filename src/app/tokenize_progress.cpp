#include "app/tokenize_progress.h"

#include <fmt/format.h>

#include <algorithm>

namespace drover {
namespace {

std::string speed_text(const TokenStreamProgress& progress, double seconds) {
    const double time = std::max(seconds, 1e-6);
    return fmt::format("{} rows of text ({:.0f} rows/s, {:.1f} MB/s), {} tokens", progress.text_rows,
                       static_cast<double>(progress.text_rows) / time,
                       static_cast<double>(progress.text_bytes) / 1e6 / time, progress.tokens);
}

}  // namespace

void TokenizeProgress::show(const TokenStreamProgress& progress) {
    line_.show([&] { return speed_text(progress, line_.seconds()); });
}

void TokenizeProgress::finish(const TokenStreamProgress& progress) {
    line_.finish(fmt::format("{} in {:.1f} s; {} rows to train on, {} tokens dropped",
                             speed_text(progress, line_.seconds()), line_.seconds(), progress.rows,
                             progress.dropped));
}

}  // namespace drover
