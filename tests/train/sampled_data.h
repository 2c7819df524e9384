#pragma once

#include "data/sampling/sampler.h"
#include "train/loop/trainer.h"

namespace drover::test {

/// Rows in the order of a sampler; derived classes fill them.
class SampledData : public TrainingData {
  public:
    SampledData(SamplerOptions options, std::int64_t row_length, StreamEnd end)
        : options_(std::move(options)), row_length_(row_length), end_(end), sampler_(options_) {}

    std::int64_t samples() const override { return options_.samples; }
    std::int64_t batches_per_epoch() const override { return sampler_.batches_per_epoch(); }
    std::int64_t tokens_per_epoch() const override { return options_.samples * row_length_; }
    std::unique_ptr<BatchStream> open(BatchPosition start) override {
        return std::make_unique<Stream>(*this, start);
    }

  protected:
    std::int64_t row_length() const { return row_length_; }

  private:
    virtual std::int32_t token(std::int64_t sample, std::int64_t place) const = 0;

    struct Stream final : BatchStream {
        Stream(SampledData& data, BatchPosition start) : data_(data), position_(start) {}

        std::optional<Batch> next() override {
            if (position_.step == data_.batches_per_epoch()) position_ = {position_.epoch + 1, 0};
            if (data_.end_ == StreamEnd::after_one_epoch && position_.epoch > 0) return std::nullopt;
            std::vector<std::int32_t> ids;
            const auto samples = data_.sampler_.batch(position_.epoch, position_.step);
            for (const std::int64_t sample : samples)
                for (std::int64_t i = 0; i < data_.row_length_; ++i) ids.push_back(data_.token(sample, i));
            const auto rows = static_cast<std::int64_t>(samples.size());
            Batch batch = Batch::full_rows(rows, data_.row_length_, ids, ids);
            batch.position = position_;
            batch.filler_rows = data_.sampler_.filler(position_.step);
            ++position_.step;
            return batch;
        }

        SampledData& data_;
        BatchPosition position_;
    };

    SamplerOptions options_;
    std::int64_t row_length_;
    StreamEnd end_;
    BatchSampler sampler_;
};

}  // namespace drover::test
