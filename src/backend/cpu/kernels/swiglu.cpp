#include "backend/cpu/kernels.h"
#include "backend/cpu/kernels/maximum.h"
#include "backend/cpu/kernels/parallel.h"

namespace drover::cpu::DROVER_ISA {
namespace {

template <class T>
void forward_row(const T* gate, const T* up, T* y, std::int64_t width) {
    for_each_vector(width, [&](auto at) {
        const Floats g = load(gate, at);
        store(y, at, rounded_to<T>(g * sigmoid(g)) * load(up, at));
    });
}

/// dgate may be gate, and dup may be up; y may be null.
template <class T>
void backward_row(const T* gate, const T* up, const T* dy, T* dgate, T* dup, T* y, std::int64_t width) {
    for_each_vector(width, [&](auto at) {
        const Floats g = load(gate, at), u = load(up, at), d = load(dy, at);
        const Floats s = sigmoid(g);
        const Floats silu = rounded_to<T>(g * s), dsilu = rounded_to<T>(d * u);
        store(dgate, at, dsilu * (s * (1.f + g * (1.f - s))));
        store(dup, at, d * silu);
        if (y) store(y, at, silu * u);
    });
}

}  // namespace

void swiglu(const Swiglu& op) {
    const std::int64_t width = op.y.size(1);
    with_type(op.y.dtype(), [&](auto t) {
        const auto* gate_up = static_cast<const decltype(t)*>(op.gate_up.raw());
        auto* y = static_cast<decltype(t)*>(op.y.raw());
        for_each_row(op.y.size(0), width, [&](std::int64_t row) {
            const auto* gate = gate_up + row * op.gate_up.stride(0);
            auto* const out = y + row * op.y.stride(0);
            forward_row(gate, gate + width, out, width);
            if (op.maximum) raise_to_row(static_cast<float*>(op.maximum.raw()), out, width);
        });
    });
}

void swiglu_backward(const SwigluBackward& op) {
    const std::int64_t width = op.dy.size(1);
    with_type(op.dy.dtype(), [&](auto t) {
        const auto* gate_up = static_cast<const decltype(t)*>(op.gate_up.raw());
        const auto* dy = static_cast<const decltype(t)*>(op.dy.raw());
        auto* dgate_up = static_cast<decltype(t)*>(op.dgate_up.raw());
        auto* y = static_cast<decltype(t)*>(op.y.raw());
        for_each_row(op.dy.size(0), width, [&](std::int64_t row) {
            const auto* gate = gate_up + row * op.gate_up.stride(0);
            auto* dgate = dgate_up + row * op.dgate_up.stride(0);
            backward_row(gate, gate + width, dy + row * op.dy.stride(0), dgate, dgate + width,
                         y ? y + row * op.y.stride(0) : nullptr, width);
            if (op.maximum) raise_to_row(static_cast<float*>(op.maximum.raw()), dgate, 2 * width);
        });
    });
}

}  // namespace drover::cpu::DROVER_ISA
