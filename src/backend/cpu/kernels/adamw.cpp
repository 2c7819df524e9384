#include "backend/cpu/kernels.h"
#include "backend/cpu/kernels/parallel.h"
#include "backend/cpu/kernels/vector_math.h"

namespace drover::cpu::DROVER_ISA {
namespace {

/// What is the same for all elements of a leaf, worked out in f64 (1 − beta2 in fp32 would lose four digits).
struct Factors {
    float gradient;  ///< clip factor
    float keep;      ///< 1 − learning rate · weight decay
    float beta1, one_minus_beta1;
    float beta2, one_minus_beta2;
    float step;  ///< learning rate / bias correction 1
    float root_bias_correction2;
    float eps;
};

template <class P, class G, class M, class V>
void update(P* param, const G* gradient, M* exp_avg, V* exp_avg_sq, float* master, const Factors& f,
            std::int64_t count) {
    for_each_vector(count, [&](auto at) {
        const Floats g = load(gradient, at) * f.gradient;
        const Floats m = load(exp_avg, at) * f.beta1 + g * f.one_minus_beta1;
        const Floats v = load(exp_avg_sq, at) * f.beta2 + g * g * f.one_minus_beta2;
        const Floats before = (master ? load(master, at) : load(param, at)) * f.keep;
        const Floats after = before - f.step * m / (square_root(v) / f.root_bias_correction2 + f.eps);
        store(exp_avg, at, m);
        store(exp_avg_sq, at, v);
        if (master) store(master, at, after);
        store(param, at, after);
    });
}

template <class P, class G, class M, class V>
void update_leaf(const AdamWLeaf& leaf, const Factors& factors) {
    auto* param = static_cast<P*>(leaf.param.raw());
    const auto* gradient = static_cast<const G*>(leaf.gradient.raw());
    auto* exp_avg = static_cast<M*>(leaf.exp_avg.raw());
    auto* exp_avg_sq = static_cast<V*>(leaf.exp_avg_sq.raw());
    auto* master = static_cast<float*>(leaf.master.raw());
    for_each_range(leaf.param.numel(), elements_per_task, [&](std::int64_t begin, std::int64_t end) {
        update(param + begin, gradient + begin, exp_avg + begin, exp_avg_sq + begin,
               master ? master + begin : nullptr, factors, end - begin);
    });
}

}  // namespace

void adamw(const AdamW& op) {
    const auto* scalars = static_cast<const float*>(op.scalars.raw());
    const double learning_rate = scalars[StepScalar::learning_rate];
    for (const AdamWLeaf& leaf : op.leaves) {
        const Factors factors{
            .gradient = scalars[StepScalar::clip_factor],
            .keep = static_cast<float>(1 - learning_rate * leaf.weight_decay),
            .beta1 = static_cast<float>(op.beta1),
            .one_minus_beta1 = static_cast<float>(1 - op.beta1),
            .beta2 = static_cast<float>(op.beta2),
            .one_minus_beta2 = static_cast<float>(1 - op.beta2),
            .step = static_cast<float>(learning_rate / scalars[StepScalar::bias_correction1]),
            .root_bias_correction2 = __builtin_sqrtf(scalars[StepScalar::bias_correction2]),
            .eps = op.eps,
        };
        with_type(leaf.param.dtype(), [&](auto p) {
            with_type(leaf.gradient.dtype(), [&](auto g) {
                with_type(leaf.exp_avg.dtype(), [&](auto m) {
                    with_type(leaf.exp_avg_sq.dtype(), [&](auto v) {
                        update_leaf<decltype(p), decltype(g), decltype(m), decltype(v)>(leaf, factors);
                    });
                });
            });
        });
    }
}

}  // namespace drover::cpu::DROVER_ISA
