#include "data/sampling/batch_loader.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/error.h"

namespace drover {
namespace {

/// Makes batches one by one; lives on the prefetcher's thread.
class BatchMaker {
  public:
    BatchMaker(const TrainingRows& rows, BatchSampler sampler, const LoaderOptions& options)
        : rows_(rows),
          sampler_(std::move(sampler)),
          collator_(options.collator),
          part_(options.part),
          position_(options.start),
          epochs_(options.epochs) {}

    std::optional<Batch> operator()() {
        if (position_.step >= sampler_.batches_per_epoch()) position_ = {position_.epoch + 1, 0};
        if (epochs_ && position_.epoch >= *epochs_) return std::nullopt;
        const std::vector<std::int64_t> samples = sampler_.batch(position_.epoch, position_.step);
        ids_.resize(samples.size());
        labels_.resize(samples.size());
        documents_.resize(samples.size());
        for (std::size_t i = 0; i < samples.size(); ++i) {
            rows_.read(samples[i], ids_[i], labels_[i]);
            rows_.documents(samples[i], documents_[i]);
        }
        Batch batch = collator_.collate(ids_, labels_, documents_);
        batch.position = position_;
        batch.filler_rows = sampler_.filler(position_.step);
        ++position_.step;
        return take_part(std::move(batch), part_);
    }

  private:
    const TrainingRows& rows_;
    BatchSampler sampler_;
    CausalCollator collator_;
    ReplicaPart part_;
    BatchPosition position_;
    std::optional<std::int64_t> epochs_;
    std::vector<std::vector<TokenId>> ids_, labels_;
    std::vector<std::vector<std::int32_t>> documents_;
};

}  // namespace

BatchLoader::BatchLoader(const TrainingRows& rows, LoaderOptions options) {
    options.sampler.samples = std::min(rows.size(), options.max_samples.value_or(rows.size()));
    if (options.sampler.order == SampleOrder::by_length) {
        options.sampler.lengths = rows.lengths();
        options.sampler.lengths.resize(static_cast<std::size_t>(options.sampler.samples));
    }
    BatchSampler sampler(options.sampler);
    batches_per_epoch_ = sampler.batches_per_epoch();
    if (batches_per_epoch_ == 0)
        throw Error(fmt::format("The data has {} rows, too few for one batch on every rank.",
                                options.sampler.samples),
                    "Use more data, a smaller batch, or keep the last short batch (no drop_last).");
    require(options.start.epoch >= 0 && options.start.step >= 0, "a run starts before its first batch");
    // std::function must be copyable, and a maker should not be copied.
    const auto maker = std::make_shared<BatchMaker>(rows, std::move(sampler), options);
    prefetcher_ = std::make_unique<Prefetcher<Batch>>(std::max<std::size_t>(1, options.prefetch),
                                                      [maker] { return (*maker)(); });
}

}  // namespace drover
