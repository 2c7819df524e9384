#include "backend/cpu/kernels.h"
#include "backend/cpu/kernels/column_sums.h"

namespace drover::cpu::DROVER_ISA {

void bias_gradient(const BiasGradient& op) {
    with_type(op.dy.dtype(), [&](auto y) {
        with_type(op.dbias.dtype(), [&](auto b) {
            const auto* dy = static_cast<const decltype(y)*>(op.dy.raw());
            auto* dbias = static_cast<decltype(b)*>(op.dbias.raw());
            const std::int64_t stride = op.dy.stride(0);
            sum_columns(op.dy.size(0), op.dy.size(1), dbias, op.accumulate,
                        [=](std::int64_t row, std::int64_t first, std::int64_t width, float* sums) {
                            const auto* from = dy + row * stride + first;
                            for_each_vector(
                                width, [=](auto at) { store(sums, at, load(sums, at) + load(from, at)); });
                        });
        });
    });
}

}  // namespace drover::cpu::DROVER_ISA
