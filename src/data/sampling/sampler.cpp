#include "data/sampling/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/error.h"
#include "core/torch_rng.h"

namespace drover {
namespace {

std::int64_t divided_up(std::int64_t value, std::int64_t divisor) {
    return (value + divisor - 1) / divisor;
}

void check(const SamplerOptions& options) {
    if (options.batch_size < 1)
        throw UsageError(fmt::format("The batch size is {}.", options.batch_size), "Use at least 1.");
    require(options.samples >= 0 && options.ranks >= 1 && options.rank >= 0 && options.rank < options.ranks,
            "a sampler needs a rank among its ranks");
    if (options.split_batches && options.batch_size % options.ranks != 0)
        throw UsageError(fmt::format("split_batches cannot cut batches of {} into {} equal parts.",
                                     options.batch_size, options.ranks),
                         "Choose a batch size that the number of ranks divides.");
    require(options.order != SampleOrder::by_length ||
                options.lengths.size() == static_cast<std::size_t>(options.samples),
            "an order by length needs the length of every sample");
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
    // The longest sample comes first, so that too little memory shows at once.
    if (!order.empty()) std::swap(order.front(), *longest);
    return order;
}

BatchSampler::BatchSampler(SamplerOptions options) : options_(std::move(options)) {
    check(options_);
    const std::int64_t samples = options_.samples;
    const std::int64_t ranks = options_.ranks;
    part_ = options_.split_batches ? options_.batch_size / ranks : options_.batch_size;
    round_ = part_ * ranks;
    limit_ = samples;
    if (options_.dealing == Dealing::strided) {
        const std::int64_t per_rank = options_.drop_last ? samples / ranks : divided_up(samples, ranks);
        limit_ = per_rank * ranks;
        period_ = std::max<std::int64_t>(1, samples);
        batches_ = options_.drop_last ? per_rank / part_ : divided_up(per_rank, part_);
    } else if (options_.drop_last) {
        batches_ = samples / round_;
    } else if (options_.even_batches && ranks > 1) {
        batches_ = divided_up(samples, round_);
        limit_ = batches_ * round_;
        period_ = std::max<std::int64_t>(1, std::min(samples, round_));
    } else {
        const std::int64_t rest = samples % round_;
        batches_ = samples / round_ + (rest > options_.rank * part_ ? 1 : 0);
    }
}

BatchSampler::Places BatchSampler::places(std::int64_t step) const {
    require(step >= 0 && step < batches_, "a batch past the end of the epoch is asked for");
    if (options_.dealing == Dealing::strided) {
        const std::int64_t first = step * part_;
        const std::int64_t count = std::min(part_, limit_ / options_.ranks - first);
        return {first * options_.ranks + options_.rank, options_.ranks, count};
    }
    const std::int64_t first = step * round_ + options_.rank * part_;
    return {first, 1, std::min(part_, limit_ - first)};
}

std::vector<std::int64_t> BatchSampler::batch(std::int64_t epoch, std::int64_t step) {
    const Places taken = places(step);
    const std::vector<std::int64_t>& order = order_of(epoch);
    std::vector<std::int64_t> samples;
    samples.reserve(static_cast<std::size_t>(taken.count));
    for (std::int64_t i = 0; i < taken.count; ++i) {
        std::int64_t place = taken.first + i * taken.stride;
        if (place >= options_.samples) place = (place - options_.samples) % period_;
        samples.push_back(order[static_cast<std::size_t>(place)]);
    }
    return samples;
}

std::int64_t BatchSampler::fresh(std::int64_t step) const {
    const Places taken = places(step);
    return std::clamp<std::int64_t>(divided_up(options_.samples - taken.first, taken.stride), 0, taken.count);
}

const std::vector<std::int64_t>& BatchSampler::order_of(std::int64_t epoch) {
    if (epoch == ordered_epoch_) return order_;
    const std::uint64_t seed = options_.data_seed.value_or(options_.seed) + static_cast<std::uint64_t>(epoch);
    switch (options_.order) {
        case SampleOrder::shuffled:
            order_ = TorchRng(seed).randperm(options_.samples);
            break;
        case SampleOrder::sequential:
            order_.resize(static_cast<std::size_t>(options_.samples));
            std::iota(order_.begin(), order_.end(), 0);
            break;
        case SampleOrder::by_length:
            order_ = length_grouped_order(
                options_.lengths, options_.length_group > 0 ? options_.length_group : options_.batch_size,
                seed);
            break;
    }
    ordered_epoch_ = epoch;
    return order_;
}

}  // namespace drover
