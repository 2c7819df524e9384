#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "data/sampling/batch_loader.h"
#include "data/sampling/batch_share.h"
#include "model/batch.h"
#include "train/state/trainer_settings.h"

namespace drover {

struct TrainingBatch {
    std::int64_t epoch = 0;
    std::int64_t step = 0;  ///< its number in the epoch
    TokenBatch tokens;
    std::int64_t attended = 0;  ///< tokens that are no padding
    std::int64_t fresh = 0;     ///< rows that are no repetitions and do not fill up
    /// Of a batch that the replicas share: all its rows, of which `tokens` has a part (`attended` is then
    /// that of all rows). 0: `tokens` is a batch of its own.
    std::int64_t shared_rows = 0;
};

/// Batches in order; nothing at the end. One that trains has no end: epochs follow each other.
class BatchStream {
  public:
    virtual ~BatchStream() = default;
    virtual std::optional<TrainingBatch> next() = 0;
};

/// Rows to train on or to evaluate, dealt to this rank in batches. Where the numbers of an epoch are not
/// known before it was read, they are 0.
class TrainingData {
  public:
    virtual ~TrainingData() = default;
    virtual std::int64_t samples() const = 0;            ///< over all ranks
    virtual std::int64_t batches_per_epoch() const = 0;  ///< of this rank
    virtual std::int64_t tokens_per_epoch() const = 0;   ///< over all ranks, without padding
    /// From `start` on; its step may lie beyond the end of an epoch whose length is not known.
    virtual std::unique_ptr<BatchStream> open(BatchPosition start) = 0;
};

/// With several parts, the share of a batch that all replicas load.
TrainingBatch to_training_batch(const LoadedBatch& loaded, const BatchShare& share = {});

/// How samples are ordered and dealt to this rank's batches: shuffled anew in every epoch for training, in
/// order for evaluation. The number of samples is left to whoever knows the data.
SamplerOptions training_sampler(const TrainerSettings& settings);
SamplerOptions evaluation_sampler(const TrainerSettings& settings);

/// Where streams over rows end.
enum class StreamEnd : std::uint8_t { never, after_one_epoch };

/// Rows of tokens that lie in files, through a BatchLoader per stream.
class TokenFileData final : public TrainingData {
  public:
    /// `rows` must outlive it. Start and end of `options` are not used. With a share, the options' sampler
    /// deals whole batches to everyone.
    TokenFileData(const TrainingRows& rows, LoaderOptions options, StreamEnd end, BatchShare share = {});

    std::int64_t samples() const override { return samples_; }
    std::int64_t batches_per_epoch() const override { return batches_per_epoch_; }
    std::int64_t tokens_per_epoch() const override;
    std::unique_ptr<BatchStream> open(BatchPosition start) override;

  private:
    const TrainingRows& rows_;
    LoaderOptions options_;
    StreamEnd end_;
    BatchShare share_;
    std::int64_t samples_;
    std::int64_t batches_per_epoch_;
};

}  // namespace drover
