#include "train/loop/training_data.h"

#include <algorithm>

#include "train/state/trainer_settings.h"

namespace drover {

SamplerOptions training_sampler(const TrainerSettings& settings) {
    return {.batch_size = settings.per_device_train_batch_size,
            .order = SampleOrder::shuffled,
            .seed = settings.seed,
            .data_seed = settings.data_seed,
            .ranks = settings.replicas,
            .rank = settings.replica,
            .drop_last = settings.dataloader_drop_last};
}

SamplerOptions evaluation_sampler(const TrainerSettings& settings) {
    SamplerOptions options = training_sampler(settings);
    options.batch_size = settings.per_device_eval_batch_size;
    options.order = SampleOrder::sequential;
    return options;
}

TokenFileData::TokenFileData(const TrainingRows& rows, LoaderOptions options, StreamEnd end)
    : rows_(rows),
      options_(std::move(options)),
      end_(end),
      samples_(std::min(rows.size(), options_.max_samples.value_or(rows.size()))) {
    LoaderOptions probe = options_;
    probe.epochs = 0;  // the loader checks the data and counts, but makes nothing ahead
    probe.start = {};
    batches_per_epoch_ = BatchLoader(rows_, probe).batches_per_epoch();
}

std::int64_t TokenFileData::tokens_per_epoch() const {
    std::int64_t tokens = 0;
    if (options_.sampler.mixture) {  // some rows come more than once, others not
        for (const std::int64_t row : epoch_order(options_.sampler, 0)) tokens += rows_.length(row);
        return tokens;
    }
    for (std::int64_t row = 0; row < samples_; ++row) tokens += rows_.length(row);
    return tokens;
}

std::unique_ptr<BatchStream> TokenFileData::open(BatchPosition start) {
    LoaderOptions options = options_;
    options.start = start;
    options.epochs =
        end_ == StreamEnd::after_one_epoch ? std::optional<std::int64_t>(start.epoch + 1) : std::nullopt;
    return std::make_unique<BatchLoader>(rows_, std::move(options));
}

}  // namespace drover
