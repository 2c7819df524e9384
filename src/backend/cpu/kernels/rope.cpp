#include "backend/cpu/kernels.h"
#include "backend/cpu/kernels/parallel.h"
#include "backend/cpu/kernels/vector_math.h"

namespace drover::cpu::DROVER_ISA {
namespace {

/// Rotates the pairs (low[i], high[i]) by the angle whose cosine and direction·sine are given.
template <class T>
void rotate_head(T* low, T* high, const float* cosine, const float* sine, float direction,
                 std::int64_t pairs) {
    for_each_vector(pairs, [&](auto at) {
        const Floats a = load(low, at), b = load(high, at);
        const Floats c = load(cosine, at), s = load(sine, at) * direction;
        store(low, at, a * c - b * s);
        store(high, at, b * c + a * s);
    });
}

}  // namespace

void rope(const Rope& op) {
    const std::int64_t heads = op.x.size(1), pairs = op.x.size(2) / 2;
    const auto* positions = static_cast<const std::int32_t*>(op.positions.raw());
    const auto* cosine = static_cast<const float*>(op.cosine.raw());
    const auto* sine = static_cast<const float*>(op.sine.raw());
    const float direction = op.inverse ? -1.f : 1.f;
    with_type(op.x.dtype(), [&](auto t) {
        auto* x = static_cast<decltype(t)*>(op.x.raw());
        for_each_row(op.x.size(0), 2 * pairs * heads, [&](std::int64_t token) {
            const std::int64_t position = positions[token];
            for (std::int64_t head = 0; head < heads; ++head) {
                auto* low = x + token * op.x.stride(0) + head * op.x.stride(1);
                rotate_head(low, low + pairs, cosine + position * op.cosine.stride(0),
                            sine + position * op.sine.stride(0), direction, pairs);
            }
        });
    });
}

}  // namespace drover::cpu::DROVER_ISA
