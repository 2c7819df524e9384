#include "hub/transfer_progress.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/number_text.h"

namespace drover {
namespace {

constexpr int bar_width = 24;

}  // namespace

TransferProgress::TransferProgress(std::string doing, std::size_t files, std::uint64_t bytes, bool shown)
    : doing_(std::move(doing)), files_(files), bytes_(bytes), shown_(shown) {}

void TransferProgress::add(std::int64_t bytes) {
    done_ += bytes;
    transferred_ += std::max<std::int64_t>(bytes, 0);
    if (!shown_) return;
    if (const std::unique_lock hold(line_access_, std::try_to_lock); hold) line_.show([&] { return text(); });
}

void TransferProgress::add_earlier(std::int64_t bytes) {
    done_ += bytes;
}

std::string TransferProgress::text() const {
    const std::uint64_t done = std::min(bytes_, static_cast<std::uint64_t>(std::max<std::int64_t>(done_, 0)));
    const double share = bytes_ == 0 ? 1 : static_cast<double>(done) / static_cast<double>(bytes_);
    const double speed = static_cast<double>(transferred_) / std::max(line_.seconds(), 1e-3);
    const int filled = static_cast<int>(share * bar_width);
    std::string line = fmt::format("{} [{:#<{}}{:.<{}}] {:.0f} %, {} of {}", doing_, "", filled, "",
                                   bar_width - filled, 100 * share, bytes_text(done), bytes_text(bytes_));
    if (files_ > 1) line += fmt::format(", {} of {} files", files_done_.load(), files_);
    if (speed > 0)
        line += fmt::format(", {}/s, {:.0f} s left", bytes_text(static_cast<std::size_t>(speed)),
                            static_cast<double>(bytes_ - done) / speed);
    return line;
}

void TransferProgress::finish() {
    if (!shown_ || transferred_ == 0) return;
    const std::lock_guard hold(line_access_);
    line_.finish(fmt::format("{}: {}, {}, {:.1f} s", doing_,
                             counted(static_cast<std::int64_t>(files_), "file"), bytes_text(bytes_),
                             line_.seconds()));
}

}  // namespace drover
