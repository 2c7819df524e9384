#pragma once

#include "core/stopwatch.h"
#include "data/packing/token_stream.h"

namespace drover {

/// Shows the progress of tokenizing on standard error: on a terminal one line, updated five times a second;
/// otherwise a line every ten seconds. Nothing for tasks that finish sooner.
class TokenizeProgress {
  public:
    TokenizeProgress();

    void show(const TokenStreamProgress& progress);
    /// Prints the last line: totals and speed.
    void finish(const TokenStreamProgress& progress);

  private:
    Stopwatch watch_;
    bool on_terminal_;
    double next_time_;
};

}  // namespace drover
