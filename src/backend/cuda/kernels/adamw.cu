#include "backend/cuda/kernels/leaf_update.cuh"

namespace drover::cuda {
namespace {

struct AdamWStep {
    using Row = UpdatedLeaf;
    using Cursor = NoCursor;
    static constexpr int moments = 2;

    /// Computed in f64 (1 − beta2 in fp32 would lose four digits).
    struct Constants {
        float keep;        ///< 1 − learning rate · weight decay, if decay comes first; otherwise 1
        float keep_after;  ///< the same if it comes last
        float beta1, one_minus_beta1;
        float beta2, one_minus_beta2;
        float step;        ///< learning rate / bias correction 1
        float root_scale;  ///< 1 / √bias correction 2
        float eps;         ///< as added to the corrected root
    };

    double beta1, beta2;
    float eps;
    bool decays_last;

    __device__ Constants constants(const UpdatedLeaf& leaf, const float* scalars) const {
        const double learning_rate = scalars[StepScalar::learning_rate];
        const auto keep = static_cast<float>(1 - learning_rate * leaf.weight_decay);
        const double root_scale = 1 / sqrt(static_cast<double>(scalars[StepScalar::bias_correction2]));
        return {
            .keep = decays_last ? 1 : keep,
            .keep_after = decays_last ? keep : 1,
            .beta1 = static_cast<float>(beta1),
            .one_minus_beta1 = static_cast<float>(1 - beta1),
            .beta2 = static_cast<float>(beta2),
            .one_minus_beta2 = static_cast<float>(1 - beta2),
            .step = static_cast<float>(learning_rate / scalars[StepScalar::bias_correction1]),
            .root_scale = static_cast<float>(root_scale),
            .eps = decays_last ? static_cast<float>(eps * root_scale) : eps,
        };
    }

    __device__ static float after(const Constants& c, const NoCursor&, float g, float before, float& m,
                                  float& v) {
        m = fmaf(m, c.beta1, g * c.one_minus_beta1);
        v = fmaf(v, c.beta2, g * g * c.one_minus_beta2);
        return fmaf(before, c.keep, -(c.step * m / fmaf(sqrtf(v), c.root_scale, c.eps))) * c.keep_after;
    }
};

}  // namespace

void adamw(const Launch& launch, const AdamW& op) {
    std::vector<UpdatedLeaf> rows;
    rows.reserve(op.leaves.size());
    for (const AdamWLeaf& leaf : op.leaves) rows.emplace_back(leaf, leaf.exp_avg, leaf.exp_avg_sq);
    update_leaves(launch, std::move(rows), op.scalars, op.rounding,
                  AdamWStep{op.beta1, op.beta2, op.eps, op.form == AdamWForm::transformers}, "adamw");
}

}  // namespace drover::cuda
