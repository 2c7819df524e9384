#include "backend/cpu/kernels.h"
#include "backend/cpu/kernels/column_sums.h"
#include "backend/cpu/kernels/maximum.h"
#include "backend/cpu/kernels/normed_row.h"

namespace drover::cpu::DROVER_ISA {
namespace {

/// residual_out = residual_in + x, rounded. Returns the sum of its squares.
template <class Y, class R>
float add_and_square(const Y* x, const R* residual_in, R* residual_out, std::int64_t width) {
    Floats squares = {};
    for_each_vector(width, [&](auto at) {
        const Floats sum = rounded_to<R>(load(residual_in, at) + load(x, at));
        store(residual_out, at, sum);
        squares += sum * sum;
    });
    return sum_of_lanes(squares);
}

template <class Y, class R, class W>
void forward(const RmsNorm& op) {
    const std::int64_t width = op.y.size(1);
    const bool adds = static_cast<bool>(op.x);
    const auto* x = static_cast<const Y*>(op.x.raw());
    const auto* residual_in = static_cast<const R*>(op.residual_in.raw());
    auto* residual_out = static_cast<R*>(op.residual_out.raw());
    const auto* weight = static_cast<const W*>(op.weight.raw());
    auto* y = static_cast<Y*>(op.y.raw());
    auto* rstd = static_cast<float*>(op.rstd.raw());
    for_each_row(op.y.size(0), width, [&](std::int64_t row) {
        const R* residual = residual_in + row * op.residual_in.stride(0);
        float squares;
        if (adds) {
            R* out = residual_out + row * op.residual_out.stride(0);
            squares = add_and_square(x + row * op.x.stride(0), residual, out, width);
            residual = out;
        } else {
            squares = sum_of_row_squares(residual, width);
        }
        rstd[row] = rstd_of(squares, width, op.eps);
        Y* const out = y + row * op.y.stride(0);
        normalise(residual, weight, rstd[row], out, width);
        if (op.maximum) raise_to_row(static_cast<float*>(op.maximum.raw()), out, width);
    });
}

/// With g = dy·weight and x̂ = residual·rstd: d = (dresidual_out) + rstd·(g − x̂·mean(g·x̂)).
template <class Y, class R, class W>
void data_gradient(const Y* dy, const R* residual, const W* weight, float rstd, const R* dresidual_out,
                   R* dresidual, std::int64_t width) {
    Floats dots = {};
    for_each_vector(width, [&](auto at) { dots += load(dy, at) * load(weight, at) * load(residual, at); });
    const float mean = sum_of_lanes(dots) * rstd / static_cast<float>(width);
    const float along_residual = rstd * rstd * mean;
    for_each_vector(width, [&](auto at) {
        Floats d = load(dy, at) * load(weight, at) * rstd - load(residual, at) * along_residual;
        if (dresidual_out) d += load(dresidual_out, at);
        store(dresidual, at, d);
    });
}

template <class Y, class R, class W>
void backward(const RmsNormBackward& op) {
    const std::int64_t rows = op.dy.size(0), width = op.dy.size(1);
    const auto* dy = static_cast<const Y*>(op.dy.raw());
    const auto* residual = static_cast<const R*>(op.residual_out.raw());
    const auto* weight = static_cast<const W*>(op.weight.raw());
    const auto* rstd = static_cast<const float*>(op.rstd.raw());
    const auto* dresidual_out = static_cast<const R*>(op.dresidual_out.raw());
    auto* dresidual = static_cast<R*>(op.dresidual.raw());
    auto* y = static_cast<Y*>(op.y.raw());
    const std::int64_t dy_stride = op.dy.stride(0), residual_stride = op.residual_out.stride(0);
    for_each_row(rows, width, [&](std::int64_t row) {
        data_gradient(dy + row * dy_stride, residual + row * residual_stride, weight, rstd[row],
                      dresidual_out ? dresidual_out + row * op.dresidual_out.stride(0) : nullptr,
                      dresidual + row * op.dresidual.stride(0), width);
        if (y)
            normalise(residual + row * residual_stride, weight, rstd[row], y + row * op.y.stride(0), width);
    });
    if (!op.dweight) return;
    with_type(op.dweight.dtype(), [&](auto d) {
        sum_columns(rows, width, static_cast<decltype(d)*>(op.dweight.raw()), op.accumulate,
                    [=](std::int64_t row, std::int64_t first, std::int64_t count, float* sums) {
                        const Y* from = dy + row * dy_stride + first;
                        const R* normalised = residual + row * residual_stride + first;
                        const float scale = rstd[row];
                        for_each_vector(count, [=](auto at) {
                            store(sums, at, load(sums, at) + load(from, at) * (load(normalised, at) * scale));
                        });
                    });
    });
}

/// Calls body(Y{}, R{}, W{}) with the types of y, residual and weight. The latter two are y's or f32.
template <class Body>
void with_types(const Tensor& y, const Tensor& residual, const Tensor& weight, const Body& body) {
    if (y.dtype() == DType::f32) return body(float{}, float{}, float{});
    with_type(residual.dtype(),
              [&](auto r) { with_type(weight.dtype(), [&](auto w) { body(bf16{}, r, w); }); });
}

}  // namespace

void rms_norm(const RmsNorm& op) {
    with_types(op.y, op.residual_in, op.weight,
               [&](auto y, auto r, auto w) { forward<decltype(y), decltype(r), decltype(w)>(op); });
}

void rms_norm_backward(const RmsNormBackward& op) {
    with_types(op.dy, op.residual_out, op.weight,
               [&](auto y, auto r, auto w) { backward<decltype(y), decltype(r), decltype(w)>(op); });
}

}  // namespace drover::cpu::DROVER_ISA
