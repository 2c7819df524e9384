#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/range.h"
#include "data/sampling/mixture.h"

namespace drover {

/// The order in which an epoch visits the samples, before they are dealt to ranks.
enum class SampleOrder {
    shuffled,    ///< torch.randperm from a generator seeded with seed + epoch
    sequential,  ///< 0, 1, 2, …
    by_length,   ///< LengthGroupedSampler: shuffled, then sorted by length within groups of batches
};

struct SamplerOptions {
    std::int64_t samples = 0;
    std::int64_t batch_size = 8;  ///< of a rank
    SampleOrder order = SampleOrder::shuffled;
    std::uint64_t seed = 42;
    std::optional<std::uint64_t> data_seed;  ///< used instead of seed
    std::int64_t ranks = 1;
    std::int64_t rank = 0;
    bool drop_last = false;
    /// Samples are dealt to ranks one by one, as by PyTorch's DistributedSampler: rank r takes every
    /// ranks-th, from r on. Needs drop_last.
    bool strided = false;
    /// by_length only: the length of each sample, and the size of the batches of similar length (Hugging Face
    /// takes per-device batch × accumulation steps); 0 means batch_size.
    std::vector<std::int64_t> lengths;
    std::int64_t length_group = 0;
    /// Not by_length: the samples are those of several datasets, mixed by weight (mixed_order); `samples` is
    /// the sum of their sizes.
    std::optional<Mixture> mixture{};
};

/// All samples of an epoch, in their order.
std::vector<std::int64_t> epoch_order(const SamplerOptions& options, std::int64_t epoch);

/// The batch of a rank at every step, dealt as in accelerate: rank r takes batches r, r + ranks, … of the
/// epoch's order (unless strided). The last round is filled up with the first samples of the epoch, or
/// dropped with drop_last; a single rank's last batch is simply shorter.
///
/// A batch is a pure function of the options, the epoch and the step. Nothing is replayed: the first batch of
/// an epoch computes its order, any other is a lookup.
class BatchSampler {
  public:
    /// UsageError if the options contradict each other.
    explicit BatchSampler(SamplerOptions options);

    /// Of this rank.
    std::int64_t batches_per_epoch() const { return batches_; }
    /// Indices of the samples of one batch; 0 ≤ step < batches_per_epoch().
    std::vector<std::int64_t> batch(std::int64_t epoch, std::int64_t step);
    /// How many samples at the end of that batch are only filler: they are in another batch of the epoch.
    std::int64_t filler(std::int64_t step) const;

  private:
    /// One batch's positions in the epoch's order (which may be past its end).
    Range places(std::int64_t step) const;
    const std::vector<std::int64_t>& order_of(std::int64_t epoch);

    SamplerOptions options_;
    std::int64_t round_ = 0;  ///< samples taken by all ranks in one step
    std::int64_t batches_ = 0;
    std::int64_t ordered_epoch_ = -1;
    std::vector<std::int64_t> order_;
};

/// LengthGroupedSampler's order from a generator with this seed. `batch_size` is at least 1.
std::vector<std::int64_t> length_grouped_order(const std::vector<std::int64_t>& lengths,
                                               std::int64_t batch_size, std::uint64_t seed);

}  // namespace drover
