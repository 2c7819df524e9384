#pragma once

#include <random>

#include "train/sampled_data.h"

namespace drover::test {

/// Random rows, dealt to ranks as the Trainer does.
class DealtData final : public SampledData {
  public:
    DealtData(SamplerOptions options, std::int64_t samples, StreamEnd end, std::int64_t row_length,
              std::uint32_t vocab)
        : SampledData(with_samples(std::move(options), samples), row_length, end) {
        for (std::int64_t sample = 0; sample < samples; ++sample) {
            std::mt19937 generator(static_cast<std::uint32_t>(sample));
            for (std::int64_t i = 0; i < row_length; ++i)
                ids_.push_back(static_cast<std::int32_t>(generator() % vocab));
        }
    }

  private:
    static SamplerOptions with_samples(SamplerOptions options, std::int64_t samples) {
        options.samples = samples;
        return options;
    }
    std::int32_t token(std::int64_t sample, std::int64_t place) const override {
        return ids_[static_cast<std::size_t>(sample * row_length() + place)];
    }

    std::vector<std::int32_t> ids_;  // [samples,row_length]
};

}  // namespace drover::test
