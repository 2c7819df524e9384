#include "generate/sampling.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "core/counter_rng.h"
#include "core/error.h"

namespace drover {
namespace {

/// A token that may still be chosen.
struct Candidate {
    std::int32_t id;
    double score;
};

void keep_likeliest(std::vector<Candidate>& candidates, std::int64_t count) {
    if (count <= 0 || static_cast<std::size_t>(count) >= candidates.size()) return;
    const auto last = candidates.begin() + (count - 1);
    std::nth_element(candidates.begin(), last, candidates.end(),
                     [](const Candidate& a, const Candidate& b) { return a.score > b.score; });
    const double smallest = last->score;
    std::erase_if(candidates, [&](const Candidate& candidate) { return candidate.score < smallest; });
}

/// Turns scores into probabilities.
void softmax(std::vector<Candidate>& candidates) {
    double largest = candidates.front().score, sum = 0;
    for (const Candidate& candidate : candidates) largest = std::max(largest, candidate.score);
    for (Candidate& candidate : candidates) sum += candidate.score = std::exp(candidate.score - largest);
    for (Candidate& candidate : candidates) candidate.score /= sum;
}

/// Drops the least likely candidates with a combined probability of at most 1 − p.
void keep_probability(std::vector<Candidate>& candidates, double p) {
    if (p >= 1) return;
    softmax(candidates);
    std::stable_sort(candidates.begin(), candidates.end(),
                     [](const Candidate& a, const Candidate& b) { return a.score < b.score; });
    double sum = 0;
    std::size_t dropped = 0;
    while (dropped + 1 < candidates.size() && (sum += candidates[dropped].score) <= 1 - p) ++dropped;
    candidates.erase(candidates.begin(), candidates.begin() + static_cast<std::ptrdiff_t>(dropped));
    for (Candidate& candidate : candidates) candidate.score = std::log(candidate.score);
}

}  // namespace

void check_sampling(const SamplingSettings& settings) {
    if (!(settings.temperature >= 0) || !std::isfinite(settings.temperature))
        throw UsageError(fmt::format("--temperature is {}.", settings.temperature),
                         "It must be 0 (the likeliest token) or more.");
    if (settings.top_k < 0)
        throw UsageError(fmt::format("--top_k is {}.", settings.top_k), "It must be 0 (all) or more.");
    if (!(settings.top_p > 0 && settings.top_p <= 1))
        throw UsageError(fmt::format("--top_p is {}.", settings.top_p), "It must be above 0 and at most 1.");
}

std::int32_t choose_token(std::span<const float> logits, const SamplingSettings& settings, std::int64_t step,
                          std::int64_t sequence) {
    require(!logits.empty(), "a token is to be chosen from none");
    for (const float logit : logits)
        if (std::isnan(logit))
            throw Error("The model's logits are not numbers.",
                        "Its weights are damaged, or too large for the dtype: try --dtype float32.");
    if (settings.temperature == 0)
        return static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());

    std::vector<Candidate> candidates;
    candidates.reserve(logits.size());
    for (std::size_t i = 0; i < logits.size(); ++i)
        candidates.push_back(
            {static_cast<std::int32_t>(i), static_cast<double>(logits[i]) / settings.temperature});
    keep_likeliest(candidates, settings.top_k);
    keep_probability(candidates, settings.top_p);
    softmax(candidates);
    std::sort(candidates.begin(), candidates.end(),
              [](const Candidate& a, const Candidate& b) { return a.id < b.id; });
    const CounterRng random(settings.seed, static_cast<std::uint64_t>(step));
    double left =
        static_cast<double>(random.uniform(leaf_hash("generate"), static_cast<std::uint64_t>(sequence)));
    for (const Candidate& candidate : candidates)
        if ((left -= candidate.score) < 0) return candidate.id;
    return candidates.back().id;  // rounding has put the sum below the random number
}

}  // namespace drover
