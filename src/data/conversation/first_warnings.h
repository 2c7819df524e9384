#pragma once

#include <atomic>
#include <functional>
#include <string>

#include "data/conversation/row_maker.h"

namespace drover {

/// Warns of the first example of a stream that is cut, the first that is left out and the first whose prompt
/// loses its end: each once, however often the examples are read. Thread-safe as far as `warn` is.
class FirstWarnings {
  public:
    using Warn = std::function<void(const std::string& sentence)>;

    /// `split` begins each sentence.
    FirstWarnings(std::string split, SftOptions options, Warn warn)
        : split_(std::move(split)), options_(std::move(options)), warn_(std::move(warn)) {}

    /// After every example.
    void look(const SftReport& report);

  private:
    void say(std::atomic<bool>& said, std::int64_t count, const std::function<std::string()>& sentence);

    std::string split_;
    SftOptions options_;
    Warn warn_;
    std::atomic<bool> said_lost_ = false, said_cut_ = false, said_dropped_ = false;
};

}  // namespace drover
