#include "backend/cpu/kernels.h"
#include "backend/cpu/kernels/double_sums.h"

namespace drover::cpu::DROVER_ISA {

void sum_of_squares(const SumOfSquares& op) {
    auto* sums = static_cast<double*>(op.sums.raw());
    for (std::size_t i = 0; i < op.tensors.size(); ++i) {
        const Tensor& tensor = op.tensors[i];
        with_type(tensor.dtype(), [&](auto t) {
            sums[i] = sum_in_double(static_cast<const decltype(t)*>(tensor.raw()), tensor.numel(),
                                    [](Doubles x) { return x * x; });
        });
    }
}

void clip_factor(const ClipFactor& op) {
    const auto* sums = static_cast<const double*>(op.sums.raw());
    auto* scalars = static_cast<float*>(op.scalars.raw());
    double total = 0;
    for (std::int64_t i = 0; i < op.sums.size(0); ++i) total += sums[i];
    const auto norm = static_cast<float>(__builtin_sqrt(total) / static_cast<double>(op.gradient_scale));
    const float factor = op.max_norm / (norm + 1e-6f);
    scalars[StepScalar::gradient_norm] = norm;
    // Written so that a NaN norm gives a NaN factor.
    scalars[StepScalar::clip_factor] = (op.max_norm <= 0 || factor > 1 ? 1.f : factor) / op.gradient_scale;
    const bool finite = __builtin_isfinite(norm) &&
                        (!op.loss || __builtin_isfinite(*static_cast<const double*>(op.loss.raw())));
    scalars[StepScalar::skips] = op.guarded && !finite ? 1.f : 0.f;
}

}  // namespace drover::cpu::DROVER_ISA
