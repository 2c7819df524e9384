#pragma once

#include "core/progress_line.h"
#include "data/packing/token_stream.h"

namespace drover {

/// Shows the progress of tokenizing on standard error.
class TokenizeProgress {
  public:
    void show(const TokenStreamProgress& progress);
    /// Prints the last line: totals and speed.
    void finish(const TokenStreamProgress& progress);

  private:
    ProgressLine line_;
};

}  // namespace drover
