#include "backend/cpu/kernels.h"
#include "backend/cpu/kernels/parallel.h"
#include "backend/cpu/kernels/vector_math.h"

namespace drover::cpu::DROVER_ISA {
namespace {

struct Maximum {
    float value;
    std::int32_t index;
};

/// The largest logit and its first index. NaN never compares larger; it shows up in the sum of exponentials.
template <class T>
Maximum maximum_of_row(const T* logits, std::int64_t width) {
    const Floats lowest = splat(-__builtin_inff());
    Floats best = lowest;
    Ints begin_of_best = {};
    const auto take = [&](Floats value, std::int64_t begin) {
        const Ints larger = value > best;
        best = larger ? value : best;
        begin_of_best = larger ? Ints{} + static_cast<std::int32_t>(begin) : begin_of_best;
    };
    std::int64_t i = 0;
    for (; i + lanes <= width; i += lanes) take(load(logits, Whole{i}), i);
    if (i < width) {
        Floats value = load(logits, Part{i, width - i});
        for (std::int64_t lane = width - i; lane < lanes; ++lane) value[lane] = lowest[0];
        take(value, i);
    }
    Maximum maximum{best[0], begin_of_best[0]};
    for (int lane = 1; lane < lanes; ++lane) {
        const std::int32_t index = begin_of_best[lane] + lane;
        if (best[lane] > maximum.value || (best[lane] == maximum.value && index < maximum.index))
            maximum = {best[lane], index};
    }
    return maximum;
}

template <class T>
float sum_of_exponentials(const T* logits, float reference, std::int64_t width) {
    Floats sum = {};
    std::int64_t i = 0;
    for (; i + lanes <= width; i += lanes) sum += exponential(load(logits, Whole{i}) - reference);
    if (i < width) {
        Floats last = exponential(load(logits, Part{i, width - i}) - reference);
        for (std::int64_t lane = width - i; lane < lanes; ++lane) last[lane] = 0;
        sum += last;
    }
    return sum_of_lanes(sum);
}

/// The sum of exp(logit − reference) · logit. A logit of −∞ adds nothing.
template <class T>
float weighted_sum_of_row(const T* logits, float reference, std::int64_t width) {
    Floats sum = {};
    const auto take = [&](Floats logit, std::int64_t count) {
        const Floats weight = exponential(logit - reference);
        Floats product = weight != 0 ? weight * logit : Floats{};
        for (std::int64_t lane = count; lane < lanes; ++lane) product[lane] = 0;
        sum += product;
    };
    std::int64_t i = 0;
    for (; i + lanes <= width; i += lanes) take(load(logits, Whole{i}), lanes);
    if (i < width) take(load(logits, Part{i, width - i}), width - i);
    return sum_of_lanes(sum);
}

template <class T>
float sum_of_row(const T* logits, std::int64_t width) {
    Floats sum = {};
    for_each_vector(width, [&](auto at) { sum += load(logits, at); });
    return sum_of_lanes(sum);
}

/// Row `target` of the vocabulary as an index into the rows held here, or −1.
std::int64_t local_index(std::int32_t target, std::int64_t first_id, std::int64_t held) {
    const std::int64_t index = target - first_id;
    return target != ignored_target && index >= 0 && index < held ? index : -1;
}

template <class T>
void statistics(const CrossEntropyStatistics& op) {
    const std::int64_t vocabulary = op.logits.size(1);
    const auto* targets = static_cast<const std::int32_t*>(op.targets.raw());
    auto* max = static_cast<float*>(op.max.raw());
    auto* sum_exp = static_cast<float*>(op.sum_exp.raw());
    auto* target_logit = static_cast<float*>(op.target_logit.raw());
    auto* argmax = static_cast<std::int32_t*>(op.argmax.raw());
    auto* logit_sum = static_cast<float*>(op.logit_sum.raw());
    auto* weighted_sum = static_cast<float*>(op.weighted_sum.raw());
    for_each_row(op.logits.size(0), vocabulary, [&](std::int64_t row) {
        const auto* logits = static_cast<const T*>(op.logits.raw()) + row * op.logits.stride(0);
        const Maximum maximum = maximum_of_row(logits, vocabulary);
        // If all logits of the row are −∞ (part of a larger vocabulary), all exponentials are zero.
        const float reference = maximum.value == -__builtin_inff() ? 0.f : maximum.value;
        max[row] = maximum.value;
        sum_exp[row] = sum_of_exponentials(logits, reference, vocabulary);
        argmax[row] = static_cast<std::int32_t>(maximum.index + op.first_id);
        const std::int64_t target = local_index(targets[row], op.first_id, vocabulary);
        target_logit[row] = target >= 0 ? load_one(logits, target) : 0.f;
        if (logit_sum) logit_sum[row] = sum_of_row(logits, vocabulary);
        if (weighted_sum) weighted_sum[row] = weighted_sum_of_row(logits, reference, vocabulary);
    });
}

/// The gradient of a row's logits is factor · exp(logit − max) − everywhere, and at the target also −
/// at_target.
struct RowGradient {
    float max, factor, everywhere, at_target;
};

template <class T>
void gradient_of_row(T* logits, std::int64_t width, std::int64_t target, RowGradient row) {
    const auto gradient = [&](Floats logit) {
        return exponential(logit - row.max) * row.factor - row.everywhere;
    };
    const float at_target = target >= 0 ? gradient(splat(load_one(logits, target)))[0] - row.at_target : 0.f;
    for_each_vector(width, [&](auto at) { store(logits, at, gradient(load(logits, at))); });
    if (target >= 0) store_one(logits, target, at_target);
}

template <class T>
void gradient(const CrossEntropyGradient& op) {
    const std::int64_t vocabulary = op.logits.size(1);
    const auto* targets = static_cast<const std::int32_t*>(op.targets.raw());
    const auto* max = static_cast<const float*>(op.max.raw());
    const auto* sum_exp = static_cast<const float*>(op.sum_exp.raw());
    const auto* target_logit = static_cast<const float*>(op.target_logit.raw());
    auto* loss = static_cast<float*>(op.loss.raw());
    const auto* scale = static_cast<const float*>(op.scale.raw());
    const auto* logit_sum = static_cast<const float*>(op.logit_sum.raw());
    const auto whole_vocabulary = static_cast<float>(op.vocabulary);
    const auto* weighted_sum = static_cast<const float*>(op.weighted_sum.raw());
    const auto* argmax = static_cast<const std::int32_t*>(op.argmax.raw());
    auto* entropy = static_cast<float*>(op.entropy.raw());
    auto* correct = static_cast<float*>(op.correct.raw());
    for_each_row(op.logits.size(0), vocabulary, [&](std::int64_t row) {
        auto* logits = static_cast<T*>(op.logits.raw()) + row * op.logits.stride(0);
        const bool ignored = targets[row] == ignored_target;
        loss[row] = ignored ? 0.f : (max[row] - target_logit[row]) + __builtin_logf(sum_exp[row]);
        if (op.smoothing > 0 && !ignored)
            loss[row] += op.smoothing * (target_logit[row] - logit_sum[row] / whole_vocabulary);
        if (entropy) {
            const float found = (max[row] - weighted_sum[row] / sum_exp[row]) + __builtin_logf(sum_exp[row]);
            entropy[row] = ignored ? 0.f : found;
            correct[row] = !ignored && argmax[row] == targets[row] ? 1.f : 0.f;
        }
        if (!scale) return;
        if (ignored) {
            for_each_vector(vocabulary, [&](auto at) { store(logits, at, splat(0)); });
        } else {
            gradient_of_row(logits, vocabulary, local_index(targets[row], op.first_id, vocabulary),
                            {.max = max[row],
                             .factor = *scale / sum_exp[row],
                             .everywhere = op.smoothing > 0 ? *scale * op.smoothing / whole_vocabulary : 0.f,
                             .at_target = *scale * (1.f - op.smoothing)});
        }
    });
}

}  // namespace

void cross_entropy_statistics(const CrossEntropyStatistics& op) {
    with_type(op.logits.dtype(), [&](auto t) { statistics<decltype(t)>(op); });
}

void cross_entropy_rescale(const CrossEntropyRescale& op) {
    const float* local_max = op.local_max.data<float>();
    const float* max = op.max.data<float>();
    float* sum_exp = op.sum_exp.data<float>();
    std::int32_t* argmax = op.argmax.data<std::int32_t>();
    float* weighted_sum = static_cast<float*>(op.weighted_sum.raw());
    for_each_row(op.max.size(0), 1, [&](std::int64_t row) {
        const float factor = __builtin_expf(local_max[row] - max[row]);
        sum_exp[row] *= factor;
        if (weighted_sum) weighted_sum[row] *= factor;
        if (local_max[row] < max[row]) argmax[row] = INT32_MAX;
    });
}

void cross_entropy_gradient(const CrossEntropyGradient& op) {
    with_type(op.logits.dtype(), [&](auto t) { gradient<decltype(t)>(op); });
}

}  // namespace drover::cpu::DROVER_ISA
