#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "core/stopwatch.h"

namespace drover {

/// Progress on standard error: on a terminal one line, updated five times a second; otherwise a line every
/// ten seconds. Nothing for tasks that finish sooner.
class ProgressLine {
  public:
    ProgressLine();

    /// Shows the text that `text` gives if it is time for one.
    void show(const std::function<std::string()>& text);
    /// Prints the last line.
    void finish(std::string_view text);

    double seconds() const { return watch_.seconds(); }

  private:
    Stopwatch watch_;
    bool on_terminal_;
    double next_time_;
};

}  // namespace drover
