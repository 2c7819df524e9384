#pragma once

#include <memory>
#include <optional>

#include "data/rows/training_rows.h"
#include "data/sampling/collator.h"
#include "data/sampling/prefetcher.h"
#include "data/sampling/replica_part.h"
#include "data/sampling/sampler.h"

namespace drover {

/// Batches in order. A training stream has no end: epochs follow each other.
class BatchStream {
  public:
    virtual ~BatchStream() = default;
    /// Nothing at the end. Rethrows errors from reading.
    virtual std::optional<Batch> next() = 0;
};

struct LoaderOptions {
    SamplerOptions sampler;  ///< samples (and lengths, where needed) are taken from the rows
    CollatorOptions collator;
    /// This replica's part of every batch. Where replicas share batches, the sampler deals whole ones to all
    /// of them.
    ReplicaPart part{};
    std::optional<std::int64_t> max_samples{};  ///< use only the first rows
    BatchPosition start{};                      ///< nothing before it is read
    std::optional<std::int64_t> epochs{};       ///< then the stream ends; absent: never
    std::size_t prefetch = 4;                   ///< batches made ahead
};

/// A rank's batches from rows of tokens, made ahead on another thread.
class BatchLoader final : public BatchStream {
  public:
    /// `rows` must outlive the loader. Error if there are too few rows for one batch, UsageError if the
    /// options contradict each other.
    BatchLoader(const TrainingRows& rows, LoaderOptions options);

    std::int64_t batches_per_epoch() const { return batches_per_epoch_; }
    std::optional<Batch> next() override { return prefetcher_->next(); }

  private:
    std::int64_t batches_per_epoch_ = 0;
    std::unique_ptr<Prefetcher<Batch>> prefetcher_;
};

}  // namespace drover
