#include "backend/cpu/kernels.h"
#include "backend/cpu/kernels/normed_row.h"
#include "backend/cpu/kernels/parallel.h"

namespace drover::cpu::DROVER_ISA {
namespace {

/// The heads of a [N,heads,D] tensor.
template <class T>
struct Heads {
    T* data;
    std::int64_t token_stride, head_stride;

    explicit Heads(const Tensor& tensor)
        : data(static_cast<T*>(tensor.raw())),
          token_stride(tensor.stride(0)),
          head_stride(tensor.stride(1)) {}
    T* at(std::int64_t token, std::int64_t head) const {
        return data + token * token_stride + head * head_stride;
    }
};

template <class T, class W>
void forward(const HeadNorm& op) {
    const std::int64_t heads = op.x.size(1), size = op.x.size(2);
    const Heads<const T> x(op.x);
    const Heads<T> y(op.y);
    const auto* weight = static_cast<const W*>(op.weight.raw());
    for_each_row(op.x.size(0), heads * size, [&](std::int64_t token) {
        for (std::int64_t head = 0; head < heads; ++head) {
            const T* from = x.at(token, head);
            const float rstd = rstd_of(sum_of_row_squares(from, size), size, op.eps);
            normalise(from, weight, rstd, y.at(token, head), size);
        }
    });
}

/// The gradient of one head, and its part of dweight added to `sums`. With g = dy·weight and x̂ = x·rstd:
/// dx = rstd·(g − x̂·mean(g·x̂)).
template <class T, class W>
void gradient_of_head(const T* dy, const T* x, const W* weight, float eps, T* dx, float* sums,
                      std::int64_t size) {
    Floats squares = {}, dots = {};
    for_each_vector(size, [&](auto at) {
        const Floats value = load(x, at);
        squares += value * value;
        dots += load(dy, at) * load(weight, at) * value;
    });
    const float rstd = rstd_of(sum_of_lanes(squares), size, eps);
    const float along_x = rstd * rstd * (sum_of_lanes(dots) * rstd / static_cast<float>(size));
    for_each_vector(size, [&](auto at) {
        const Floats d = load(dy, at), value = load(x, at);
        store(sums, at, load(sums, at) + d * (value * rstd));
        store(dx, at, d * load(weight, at) * rstd - value * along_x);
    });
}

/// Heads are too small to share their columns among threads, so the tokens are cut into slices by their
/// number alone. Each slice has its own sums, kept 64 heads at a time so that their rounding does not grow
/// with the number of heads, and the slices' sums are added in order.
template <class T, class W>
void backward(const HeadNormBackward& op) {
    constexpr std::int64_t max_slices = 128, heads_at_once = 64;
    const std::int64_t tokens = op.dy.size(0), heads = op.dy.size(1), size = op.dy.size(2);
    const Heads<const T> dy(op.dy), x(op.x);
    const Heads<T> dx(op.dx);
    const auto* weight = static_cast<const W*>(op.weight.raw());
    const std::int64_t share = (tokens + max_slices - 1) / max_slices;
    const std::int64_t worthwhile = (elements_per_task + heads * size - 1) / (heads * size);
    const std::int64_t step = share > worthwhile ? share : worthwhile;
    alignas(64) float slices[max_slices][HeadNorm::largest_head];
    for_each_range(tokens, step, [&](std::int64_t begin, std::int64_t end) {
        float* const total = slices[begin / step];
        alignas(64) float partial[HeadNorm::largest_head] = {};
        for_each_vector(size, [&](auto at) { store(total, at, Floats{}); });
        const auto add_partial = [&] {
            for_each_vector(size, [&](auto at) {
                store(total, at, load(total, at) + load(partial, at));
                store(partial, at, Floats{});
            });
        };
        std::int64_t summed = 0;
        for (std::int64_t token = begin; token < end; ++token)
            for (std::int64_t head = 0; head < heads; ++head) {
                gradient_of_head(dy.at(token, head), x.at(token, head), weight, op.eps, dx.at(token, head),
                                 partial, size);
                if (++summed % heads_at_once == 0) add_partial();
            }
        add_partial();
    });
    if (!op.dweight) return;
    with_type(op.dweight.dtype(), [&](auto d) {
        auto* dweight = static_cast<decltype(d)*>(op.dweight.raw());
        for_each_vector(size, [&](auto at) {
            Floats sum = {};
            for (std::int64_t slice = 0; slice * step < tokens; ++slice) sum += load(slices[slice], at);
            store(dweight, at, op.accumulate ? load(dweight, at) + sum : sum);
        });
    });
}

/// Calls body(T{}, W{}) with the types of the heads and the weight, which is theirs or f32.
template <class Body>
void with_types(const Tensor& heads, const Tensor& weight, const Body& body) {
    if (heads.dtype() == DType::f32) return body(float{}, float{});
    with_type(weight.dtype(), [&](auto w) { body(bf16{}, w); });
}

}  // namespace

void head_norm(const HeadNorm& op) {
    with_types(op.x, op.weight, [&](auto t, auto w) { forward<decltype(t), decltype(w)>(op); });
}

void head_norm_backward(const HeadNormBackward& op) {
    with_types(op.dy, op.weight, [&](auto t, auto w) { backward<decltype(t), decltype(w)>(op); });
}

}  // namespace drover::cpu::DROVER_ISA
