#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>

#include "core/progress_line.h"

namespace drover {

/// What several threads have fetched or sent so far, on standard error: a bar on a terminal, otherwise a line
/// every ten seconds.
class TransferProgress {
  public:
    /// `doing` begins the line: "Fetching owner/name".
    TransferProgress(std::string doing, std::size_t files, std::uint64_t bytes, bool shown);

    void add(std::int64_t bytes);
    /// Bytes that were there before; they do not count for the speed.
    void add_earlier(std::int64_t bytes);
    void file_done() { ++files_done_; }
    /// Prints the last line, if anything was transferred.
    void finish();

  private:
    std::string text() const;

    std::string doing_;
    std::size_t files_;
    std::uint64_t bytes_;
    bool shown_;
    std::atomic<std::int64_t> done_{0}, transferred_{0};
    std::atomic<std::size_t> files_done_{0};
    std::mutex line_access_;
    ProgressLine line_;
};

}  // namespace drover
