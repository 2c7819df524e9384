#include "train/loop/training_data.h"

#include <algorithm>
#include <numeric>

namespace drover {
namespace {

class LoaderStream final : public BatchStream {
  public:
    LoaderStream(const TrainingRows& rows, const LoaderOptions& options, const BatchShare& share)
        : share_(share), loader_(rows, options) {}

    std::optional<TrainingBatch> next() override {
        const std::optional<LoadedBatch> loaded = loader_.next();
        if (!loaded) return std::nullopt;
        return to_training_batch(*loaded, share_);
    }

  private:
    BatchShare share_;
    BatchLoader loader_;
};

}  // namespace

TrainingBatch to_training_batch(const LoadedBatch& loaded, const BatchShare& share) {
    const auto& all_lengths = loaded.batch.lengths;
    const std::int64_t attended = std::accumulate(all_lengths.begin(), all_lengths.end(), std::int64_t{0});
    if (share.parts > 1) {
        const LoadedBatch own{loaded.position, share_of(loaded.batch, share),
                              share.fresh_of(loaded.batch.rows)};
        TrainingBatch batch = to_training_batch(own);
        batch.attended = attended;
        batch.shared_rows = loaded.batch.rows;
        return batch;
    }
    const LabelledBatch& batch = loaded.batch;
    const bool full = std::all_of(batch.lengths.begin(), batch.lengths.end(),
                                  [&](std::int32_t length) { return length == batch.row_length; });
    return {.epoch = loaded.position.epoch,
            .step = loaded.position.step,
            .tokens = full ? TokenBatch::from_labels(batch.rows, batch.row_length, batch.ids, batch.labels)
                           : TokenBatch::right_padded(batch.rows, batch.row_length, batch.ids, batch.labels,
                                                      batch.lengths),
            .attended = attended,
            .fresh = loaded.fresh};
}

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

TokenFileData::TokenFileData(const TrainingRows& rows, LoaderOptions options, StreamEnd end, BatchShare share)
    : rows_(rows),
      options_(std::move(options)),
      end_(end),
      share_(share),
      samples_(std::min(rows.size(), options_.max_samples.value_or(rows.size()))) {
    LoaderOptions probe = options_;
    probe.epochs = 0;  // the loader checks the data and counts, but makes nothing ahead
    probe.start = {};
    batches_per_epoch_ = BatchLoader(rows_, probe).batches_per_epoch();
}

std::int64_t TokenFileData::tokens_per_epoch() const {
    std::int64_t tokens = 0;
    for (std::int64_t row = 0; row < samples_; ++row) tokens += rows_.length(row);
    return tokens;
}

std::unique_ptr<BatchStream> TokenFileData::open(BatchPosition start) {
    LoaderOptions options = options_;
    options.start = start;
    options.epochs =
        end_ == StreamEnd::after_one_epoch ? std::optional<std::int64_t>(start.epoch + 1) : std::nullopt;
    return std::make_unique<LoaderStream>(rows_, options, share_);
}

}  // namespace drover
