#pragma once

#include "backend/cuda/kernels/eights.cuh"

/// What the kernels of cross-entropy have in common: where a row's results are, and its loss and gradient.
namespace drover::cuda {

__device__ inline float lowest() {
    return -__int_as_float(0x7F800000);
}

template <class T>
struct PairOf;
template <>
struct PairOf<bfloat_t> {
    using Type = __nv_bfloat162;
};
template <>
struct PairOf<half_t> {
    using Type = __half2;
};

/// The largest element that is no NaN.
template <class T, int count>
__device__ float largest_of(const Eight<T> (&eights)[count]) {
    if constexpr (sizeof(T) == 2) {
        using Pair = typename PairOf<T>::Type;
        const Pair* pairs = reinterpret_cast<const Pair*>(&eights);
        Pair largest = pairs[0];
#pragma unroll
        for (int i = 1; i < 4 * count; ++i) largest = __hmax2(largest, pairs[i]);
        return fmaxf(to_float(largest.x), to_float(largest.y));
    } else {
        const T* elements = reinterpret_cast<const T*>(&eights);
        float largest = elements[0];
#pragma unroll
        for (int i = 1; i < 8 * count; ++i) largest = fmaxf(largest, elements[i]);
        return largest;
    }
}

struct StatisticsOfRows {
    float *max, *sum_exp, *target_logit, *logit_sum;
    std::int32_t* argmax;
};

inline StatisticsOfRows statistics_of(const CrossEntropyStatistics& op) {
    return {.max = elements<float>(op.max),
            .sum_exp = elements<float>(op.sum_exp),
            .target_logit = elements<float>(op.target_logit),
            .logit_sum = elements<float>(op.logit_sum),
            .argmax = elements<std::int32_t>(op.argmax)};
}

struct LossRows {
    const std::int32_t* targets;
    const float *max, *sum_exp, *target_logit;
    const float* logit_sum;  ///< only with smoothing
    float* loss;
    const float* scale;
    std::int64_t first_id, stride;
    std::int32_t width;
    float smoothing, vocabulary;

    /// Where in its row the target's logit is; −1 when the target is ignored or not held here.
    __device__ std::int32_t target_of(std::int64_t row) const {
        const std::int64_t of_share = targets[row] - first_id;
        const bool held = targets[row] != ignored_target && of_share >= 0 && of_share < width;
        return held ? static_cast<std::int32_t>(of_share) : -1;
    }

    __device__ void write_loss(std::int64_t row, float of_max, float of_sum, float of_target) const {
        if (targets[row] == ignored_target) {
            loss[row] = 0;
            return;
        }
        float value = (of_max - of_target) + logf(of_sum);
        if (smoothing > 0) value += smoothing * (of_target - logit_sum[row] / vocabulary);
        loss[row] = value;
    }
};

inline LossRows loss_rows_of(const CrossEntropyGradient& op) {
    return {.targets = elements<const std::int32_t>(op.targets),
            .max = elements<const float>(op.max),
            .sum_exp = elements<const float>(op.sum_exp),
            .target_logit = elements<const float>(op.target_logit),
            .logit_sum = elements<const float>(op.logit_sum),
            .loss = elements<float>(op.loss),
            .scale = elements<const float>(op.scale),
            .first_id = op.first_id,
            .stride = op.logits.stride(0),
            .width = static_cast<std::int32_t>(op.logits.size(1)),
            .smoothing = op.smoothing,
            .vocabulary = static_cast<float>(op.vocabulary)};
}

/// The gradient of a row's logits from its statistics.
template <class T>
class GradientOfRow {
  public:
    __device__ GradientOfRow(const LossRows& rows, std::int64_t row, float max, float sum_exp)
        : ignored_(rows.targets[row] == ignored_target), target_(rows.target_of(row)), exponential_(max) {
        const float scale = *rows.scale;
        factor_ = scale / sum_exp * exponential_.correction(max);
        everywhere_ = rows.smoothing > 0 ? scale * rows.smoothing / rows.vocabulary : 0.f;
        at_target_ = scale * (1.f - rows.smoothing);
    }

    __device__ float of(float logit, std::int32_t at) const {
        const float value = ignored_ ? 0.f : fmaf(exponential_(logit), factor_, -everywhere_);
        return at == target_ ? value - at_target_ : value;
    }

    /// Of the eight logits from `at` on.
    __device__ Eight<T> of(const Eight<T>& logits, std::int32_t at) const {
        float values[8] = {};
        if (!ignored_) {
            to_floats(logits, values);
#pragma unroll
            for (int e = 0; e < 8; ++e) values[e] = fmaf(exponential_(values[e]), factor_, -everywhere_);
        }
        if (static_cast<std::uint32_t>(target_ - at) < 8)
#pragma unroll
            for (int e = 0; e < 8; ++e)
                if (at + e == target_) values[e] -= at_target_;
        return to_eight<T>(values);
    }

  private:
    bool ignored_;
    std::int32_t target_;
    ExponentialsFrom<T> exponential_;
    float factor_, everywhere_, at_target_;
};

}  // namespace drover::cuda
