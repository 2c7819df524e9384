#pragma once

#include <random>

#include "data/sampler.h"
#include "train/trainer.h"

namespace drover::test {

/// Random rows, dealt to ranks as the Trainer does it.
class DealtData final : public TrainingData {
  public:
    DealtData(SamplerOptions options, std::int64_t samples, StreamEnd end, std::int64_t row_length,
              std::uint32_t vocab)
        : options_(with_samples(std::move(options), samples)),
          end_(end),
          row_length_(row_length),
          vocab_(vocab),
          sampler_(options_) {}

    std::int64_t samples() const override { return options_.samples; }
    std::int64_t batches_per_epoch() const override { return sampler_.batches_per_epoch(); }
    std::int64_t tokens_per_epoch() const override { return options_.samples * row_length_; }
    std::unique_ptr<BatchStream> open(BatchPosition start) override {
        return std::make_unique<Stream>(*this, start);
    }

  private:
    struct Stream final : BatchStream {
        Stream(DealtData& data, BatchPosition start) : data_(data), position_(start) {}

        std::optional<TrainingBatch> next() override {
            if (position_.step == data_.batches_per_epoch()) position_ = {position_.epoch + 1, 0};
            if (data_.end_ == StreamEnd::after_one_epoch && position_.epoch > 0) return std::nullopt;
            const auto samples = data_.sampler_.batch(position_.epoch, position_.step);
            std::vector<std::int32_t> ids;
            for (const std::int64_t sample : samples) {
                std::mt19937 generator(static_cast<std::uint32_t>(sample));
                for (std::int64_t i = 0; i < data_.row_length_; ++i)
                    ids.push_back(static_cast<std::int32_t>(generator() % data_.vocab_));
            }
            const auto rows = static_cast<std::int64_t>(samples.size());
            TrainingBatch batch{.epoch = position_.epoch,
                                .step = position_.step,
                                .tokens = TokenBatch::from_labels(rows, data_.row_length_, ids, ids),
                                .attended = rows * data_.row_length_,
                                .fresh = data_.sampler_.fresh(position_.step)};
            ++position_.step;
            return batch;
        }

        DealtData& data_;
        BatchPosition position_;
    };

    static SamplerOptions with_samples(SamplerOptions options, std::int64_t samples) {
        options.samples = samples;
        return options;
    }

    SamplerOptions options_;
    StreamEnd end_;
    std::int64_t row_length_;
    std::uint32_t vocab_;
    BatchSampler sampler_;
};

}  // namespace drover::test
