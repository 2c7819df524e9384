#include "data/sampling/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/error.h"
#include "core/torch_rng.h"

namespace drover {
namespace {

void check(const SamplerOptions& options) {
    if (options.batch_size < 1)
        throw UsageError(fmt::format("The batch size is {}.", options.batch_size), "Use at least 1.");
    require(options.samples >= 0 && options.ranks >= 1 && options.rank >= 0 && options.rank < options.ranks,
            "a sampler needs a rank among its ranks");
    require(options.order != SampleOrder::by_length ||
                options.lengths.size() == static_cast<std::size_t>(options.samples),
            "an order by length needs the length of every sample");
    require(!options.strided || options.drop_last, "strided samples end with the last full round");
    if (!options.mixture) return;
    const std::vector<std::int64_t>& sizes = options.mixture->sizes;
    require(options.order != SampleOrder::by_length &&
                std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0}) == options.samples,
            "a mixture of all samples, which is not ordered by length");
}

}  // namespace

std::vector<std::int64_t> length_grouped_order(const std::vector<std::int64_t>& lengths,
                                               std::int64_t batch_size, std::uint64_t seed) {
    const auto count = static_cast<std::int64_t>(lengths.size());
    std::vector<std::int64_t> order = TorchRng(seed).randperm(count);
    const std::int64_t batches =
        std::max<std::int64_t>(1, std::min<std::int64_t>(count / (batch_size * 4), 50));
    const auto length = [&](std::int64_t sample) { return lengths[static_cast<std::size_t>(sample)]; };
    auto longest = order.begin();
    for (auto begin = order.begin(); begin < order.end();) {
        const auto end = begin + std::min<std::int64_t>(batches * batch_size, order.end() - begin);
        std::stable_sort(begin, end, [&](auto a, auto b) { return length(a) > length(b); });
        if (length(*begin) > length(*longest)) longest = begin;
        begin = end;
    }
    // The longest sample comes first, so that a lack of memory shows immediately.
    if (!order.empty()) std::swap(order.front(), *longest);
    return order;
}

std::vector<std::int64_t> epoch_order(const SamplerOptions& options, std::int64_t epoch) {
    const std::uint64_t run_seed = options.data_seed.value_or(options.seed);
    if (options.mixture)
        return mixed_order(*options.mixture, epoch, options.order == SampleOrder::shuffled, run_seed);
    const std::uint64_t seed = run_seed + static_cast<std::uint64_t>(epoch);
    switch (options.order) {
        case SampleOrder::shuffled:
            return TorchRng(seed).randperm(options.samples);
        case SampleOrder::sequential:
            break;
        case SampleOrder::by_length:
            return length_grouped_order(
                options.lengths, options.length_group > 0 ? options.length_group : options.batch_size, seed);
    }
    std::vector<std::int64_t> order(static_cast<std::size_t>(options.samples));
    std::iota(order.begin(), order.end(), 0);
    return order;
}

BatchSampler::BatchSampler(SamplerOptions options) : options_(std::move(options)) {
    check(options_);
    round_ = options_.batch_size * options_.ranks;
    batches_ = (options_.samples + (options_.drop_last ? 0 : round_ - 1)) / round_;
}

Range BatchSampler::places(std::int64_t step) const {
    require(step >= 0 && step < batches_, "a batch past the end of the epoch is asked for");
    const std::int64_t first = step * round_ + options_.rank * options_.batch_size;
    const bool filled_up = options_.ranks > 1;
    return {first, filled_up ? options_.batch_size : std::min(options_.batch_size, options_.samples - first)};
}

std::vector<std::int64_t> BatchSampler::batch(std::int64_t epoch, std::int64_t step) {
    const Range taken = places(step);
    const std::vector<std::int64_t>& order = order_of(epoch);
    const std::int64_t first_round = std::min(options_.samples, round_);
    std::vector<std::int64_t> samples;
    samples.reserve(static_cast<std::size_t>(taken.count));
    if (options_.strided) {
        for (std::int64_t i = 0; i < taken.count; ++i)
            samples.push_back(
                order[static_cast<std::size_t>(step * round_ + i * options_.ranks + options_.rank)]);
        return samples;
    }
    for (std::int64_t place = taken.begin; place < taken.end(); ++place) {
        const std::int64_t from = place < options_.samples ? place : (place - options_.samples) % first_round;
        samples.push_back(order[static_cast<std::size_t>(from)]);
    }
    return samples;
}

std::int64_t BatchSampler::filler(std::int64_t step) const {
    const Range taken = places(step);
    return std::clamp<std::int64_t>(taken.end() - options_.samples, 0, taken.count);
}

const std::vector<std::int64_t>& BatchSampler::order_of(std::int64_t epoch) {
    if (epoch != ordered_epoch_) order_ = epoch_order(options_, epoch);
    ordered_epoch_ = epoch;
    return order_;
}

}  // namespace drover
