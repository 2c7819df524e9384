#pragma once

#include <cstdint>
#include <memory>

#include "data/sampling/batch_loader.h"

namespace drover {

struct TrainerSettings;

/// Rows to train on or to evaluate, dealt to this rank in batches. The numbers of an epoch are 0 if they are
/// unknown before it was read.
class TrainingData {
  public:
    virtual ~TrainingData() = default;
    virtual std::int64_t samples() const = 0;            ///< over all ranks
    virtual std::int64_t batches_per_epoch() const = 0;  ///< of this rank
    virtual std::int64_t tokens_per_epoch() const = 0;   ///< over all ranks, without padding
    /// Starts at `start`; its step may be past the end of an epoch whose length is unknown.
    virtual std::unique_ptr<BatchStream> open(BatchPosition start) = 0;
};

/// How samples are ordered and dealt to this rank's batches: reshuffled in every epoch for training, in order
/// for evaluation. The caller, which knows the data, sets the number of samples.
SamplerOptions training_sampler(const TrainerSettings& settings);
SamplerOptions evaluation_sampler(const TrainerSettings& settings);

/// Where streams over rows end.
enum class StreamEnd : std::uint8_t { never, after_one_epoch };

/// Rows of tokens in files, read through one BatchLoader per stream.
class TokenFileData final : public TrainingData {
  public:
    /// `rows` must outlive this object. Start and end of `options` are ignored.
    TokenFileData(const TrainingRows& rows, LoaderOptions options, StreamEnd end);

    std::int64_t samples() const override { return samples_; }
    std::int64_t batches_per_epoch() const override { return batches_per_epoch_; }
    std::int64_t tokens_per_epoch() const override;
    std::unique_ptr<BatchStream> open(BatchPosition start) override;

  private:
    const TrainingRows& rows_;
    LoaderOptions options_;
    StreamEnd end_;
    std::int64_t samples_;
    std::int64_t batches_per_epoch_;
};

}  // namespace drover
