#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "data/rows/training_rows.h"
#include "data/sampling/collator.h"
#include "data/sampling/prefetcher.h"
#include "data/sampling/sampler.h"

namespace drover {

/// A place in a run.
struct BatchPosition {
    std::int64_t epoch = 0;
    std::int64_t step = 0;  ///< batch of this rank in the epoch
};

struct LoadedBatch {
    BatchPosition position;
    LabelledBatch batch;
    std::int64_t fresh = 0;  ///< rows that are no repetitions; see BatchSampler::fresh
};

struct LoaderOptions {
    SamplerOptions sampler;  ///< samples (and lengths, where needed) are taken from the rows
    CollatorOptions collator;
    std::optional<std::int64_t> max_samples;  ///< use only the first rows
    BatchPosition start;                      ///< nothing before it is read
    std::optional<std::int64_t> epochs;       ///< the end; without it epochs follow each other for ever
    std::size_t prefetch = 4;                 ///< batches made ahead
};

/// The batches of a rank from rows of tokens, made ahead on another thread.
class BatchLoader {
  public:
    /// `rows` must outlive the loader. Error when there are too few rows for one batch, UsageError when
    /// the options contradict each other.
    BatchLoader(const TrainingRows& rows, LoaderOptions options);

    std::int64_t batches_per_epoch() const { return batches_per_epoch_; }
    /// Nothing at the end of the last epoch. Rethrows what went wrong while reading.
    std::optional<LoadedBatch> next() { return prefetcher_->next(); }

  private:
    std::int64_t batches_per_epoch_ = 0;
    std::unique_ptr<Prefetcher<LoadedBatch>> prefetcher_;
};

}  // namespace drover
