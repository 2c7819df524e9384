#pragma once

#include "core/stopwatch.h"
#include "data/packing/token_stream.h"

namespace drover {

/// Says on standard error how far tokenizing is: five times a second on one line of a terminal, else a line
/// every ten seconds; nothing at all from tasks that are done before that.
class TokenizeProgress {
  public:
    TokenizeProgress();

    void show(const TokenStreamProgress& progress);
    /// The last word: totals and speed.
    void finish(const TokenStreamProgress& progress);

  private:
    Stopwatch watch_;
    bool on_terminal_;
    double next_time_;
};

}  // namespace drover
