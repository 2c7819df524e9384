#include "backend/cpu/kernels.h"
#include "backend/cpu/kernels/leaf_update.h"

namespace drover::cpu::DROVER_ISA {
namespace {

/// Constants of a leaf, computed in f64 (1 − beta2 in fp32 would lose four digits).
struct Factors {
    float keep;        ///< 1 − learning rate · weight decay, if decay comes first; otherwise 1
    float keep_after;  ///< the same if it comes last
    float beta1, one_minus_beta1;
    float beta2, one_minus_beta2;
    float step;        ///< learning rate / bias correction 1
    float root_scale;  ///< 1 / √bias correction 2
    float eps;         ///< as added to the corrected root
};

}  // namespace

void adamw(const AdamW& op) {
    if (skips(op.scalars)) return;
    const auto* scalars = static_cast<const float*>(op.scalars.raw());
    const double learning_rate = scalars[StepScalar::learning_rate];
    for (const AdamWLeaf& leaf : op.leaves) {
        const bool decays_last = op.form == AdamWForm::transformers;
        const auto keep = static_cast<float>(1 - learning_rate * leaf.weight_decay);
        const double root_scale =
            1 / __builtin_sqrt(static_cast<double>(scalars[StepScalar::bias_correction2]));
        const Factors f{
            .keep = decays_last ? 1 : keep,
            .keep_after = decays_last ? keep : 1,
            .beta1 = static_cast<float>(op.beta1),
            .one_minus_beta1 = static_cast<float>(1 - op.beta1),
            .beta2 = static_cast<float>(op.beta2),
            .one_minus_beta2 = static_cast<float>(1 - op.beta2),
            .step = static_cast<float>(learning_rate / scalars[StepScalar::bias_correction1]),
            .root_scale = static_cast<float>(root_scale),
            .eps = decays_last ? static_cast<float>(op.eps * root_scale) : op.eps,
        };
        with_leaf_update(leaf, scalars, op.rounding, [&](const auto& update) {
            with_type(leaf.exp_avg.dtype(), [&](auto m_type) {
                with_type(leaf.exp_avg_sq.dtype(), [&](auto v_type) {
                    auto* exp_avg = static_cast<decltype(m_type)*>(leaf.exp_avg.raw());
                    auto* exp_avg_sq = static_cast<decltype(v_type)*>(leaf.exp_avg_sq.raw());
                    update.run([=](auto at, Floats g, Floats before) {
                        const Floats m = load(exp_avg, at) * f.beta1 + g * f.one_minus_beta1;
                        const Floats v = load(exp_avg_sq, at) * f.beta2 + g * g * f.one_minus_beta2;
                        store(exp_avg, at, m);
                        store(exp_avg_sq, at, v);
                        return (before * f.keep - f.step * m / (square_root(v) * f.root_scale + f.eps)) *
                               f.keep_after;
                    });
                });
            });
        });
    }
}

}  // namespace drover::cpu::DROVER_ISA
