#include "data/sampling/mixture.h"

#include <cmath>

#include "core/error.h"
#include "core/torch_rng.h"

namespace drover {
namespace {

constexpr int share_bits = 63;
__extension__ using Wide = unsigned __int128;

std::size_t middle_of(std::size_t begin, std::size_t end) {
    return begin + (end - begin) / 2;
}

/// Fills in the divisions of [begin, end); returns the weight of these datasets.
double divide(const std::vector<double>& weights, std::size_t begin, std::size_t end,
              std::vector<std::uint64_t>& left_shares) {
    if (end - begin == 1) return weights[begin];
    const std::size_t middle = middle_of(begin, end);
    const double left = divide(weights, begin, middle, left_shares);
    const double both = left + divide(weights, middle, end, left_shares);
    left_shares[middle] = static_cast<std::uint64_t>(std::ldexp(left / both, share_bits));
    return both;
}

/// A dataset's order of the moment.
struct Pass {
    std::int64_t number = -1;
    std::vector<std::int64_t> order;
};

/// The first dataset is shuffled as if it were alone. Datasets of the same size should not have the same
/// order, since their rows may belong together. (The generator uses 32 bits of the seed.)
std::uint64_t pass_seed(std::uint64_t seed, std::size_t dataset, std::int64_t pass) {
    constexpr std::uint64_t golden_ratio = 0x9E3779B9;
    return seed + static_cast<std::uint64_t>(pass) + dataset * golden_ratio;
}

}  // namespace

MixtureDealing::MixtureDealing(const std::vector<double>& weights) : left_shares_(weights.size()) {
    require(!weights.empty(), "a mixture of nothing");
    for (const double weight : weights)
        require(weight > 0 && std::isfinite(weight), "a weight that is not above 0");
    divide(weights, 0, weights.size(), left_shares_);
}

/// How many of some first examples are of the datasets before `middle`: their share, rounded. It grows by 0
/// or 1 with each example, because the product is exact.
std::int64_t MixtureDealing::left_of(std::int64_t examples, std::size_t middle) const {
    const Wide half = Wide{1} << (share_bits - 1);
    return static_cast<std::int64_t>((static_cast<Wide>(examples) * left_shares_[middle] + half) >>
                                     share_bits);
}

MixtureDealing::Draw MixtureDealing::draw(std::int64_t example) const {
    std::size_t begin = 0, end = left_shares_.size();
    while (end - begin > 1) {
        const std::size_t middle = middle_of(begin, end);
        const std::int64_t before = left_of(example, middle);
        if (left_of(example + 1, middle) > before) {
            example = before;
            end = middle;
        } else {
            example -= before;
            begin = middle;
        }
    }
    return {begin, example};
}

std::vector<std::int64_t> MixtureDealing::counts(std::int64_t examples) const {
    std::vector<std::int64_t> counts(left_shares_.size());
    count(0, counts.size(), examples, counts);
    return counts;
}

void MixtureDealing::count(std::size_t begin, std::size_t end, std::int64_t examples,
                           std::vector<std::int64_t>& counts) const {
    if (end - begin == 1) {
        counts[begin] = examples;
        return;
    }
    const std::size_t middle = middle_of(begin, end);
    const std::int64_t left = left_of(examples, middle);
    count(begin, middle, left, counts);
    count(middle, end, examples - left, counts);
}

std::vector<std::int64_t> mixed_order(const Mixture& mixture, std::int64_t epoch, bool shuffled,
                                      std::uint64_t seed) {
    const std::vector<std::int64_t>& sizes = mixture.sizes;
    require(sizes.size() == mixture.weights.size(), "a weight for each dataset");
    std::vector<std::int64_t> begins;
    std::int64_t examples = 0;
    for (const std::int64_t size : sizes) {
        require(size > 0, "a dataset without rows is mixed");
        begins.push_back(examples);
        examples += size;
    }
    const MixtureDealing dealing(mixture.weights);
    std::vector<Pass> passes(sizes.size());
    std::vector<std::int64_t> order;
    order.reserve(static_cast<std::size_t>(examples));
    for (std::int64_t example = epoch * examples; example < (epoch + 1) * examples; ++example) {
        const auto [dataset, number] = dealing.draw(example);
        const std::int64_t pass = number / sizes[dataset];
        std::int64_t row = number % sizes[dataset];
        if (shuffled) {
            Pass& current = passes[dataset];
            if (current.number != pass)
                current = {pass, TorchRng(pass_seed(seed, dataset, pass)).randperm(sizes[dataset])};
            row = current.order[static_cast<std::size_t>(row)];
        }
        order.push_back(begins[dataset] + row);
    }
    return order;
}

}  // namespace drover
