#include "backend/cpu/kernels.h"
#include "backend/cpu/kernels/leaf_update.h"

// The optimizers that keep at most one number per element. PyTorch's SGD, Adagrad and RMSprop add the weight
// decay to the gradient.

namespace drover::cpu::DROVER_ISA {
namespace {

/// Every element of the op's leaves becomes before − learning rate · direction(at, gradient with decay,
/// moments), where `moments` is the leaf's moment, or null when it has none.
template <class Operation, class Direction>
void descend(const Operation& op, const Direction& direction) {
    if (skips(op.scalars)) return;
    const auto* scalars = static_cast<const float*>(op.scalars.raw());
    const float learning_rate = scalars[StepScalar::learning_rate];
    for (const MomentLeaf& leaf : op.leaves) {
        const float weight_decay = leaf.weight_decay;
        with_leaf_update(leaf, scalars, op.rounding, [&](const auto& update) {
            with_type(leaf.moment ? leaf.moment.dtype() : DType::f32, [&](auto type) {
                auto* moments = static_cast<decltype(type)*>(leaf.moment.raw());
                update.run([=](auto at, Floats g, Floats before) {
                    return before - learning_rate * direction(at, g + weight_decay * before, moments);
                });
            });
        });
    }
}

}  // namespace

void sgd(const Sgd& op) {
    descend(op, [momentum = op.momentum](auto at, Floats g, auto* moments) {
        if (!moments) return g;
        const Floats moment = load(moments, at) * momentum + g;
        store(moments, at, moment);
        return moment;
    });
}

void adagrad(const Adagrad& op) {
    descend(op, [eps = op.eps](auto at, Floats g, auto* moments) {
        const Floats squares = load(moments, at) + g * g;
        store(moments, at, squares);
        return g / (square_root(squares) + eps);
    });
}

void rmsprop(const Rmsprop& op) {
    const auto alpha = static_cast<float>(op.alpha), one_minus_alpha = static_cast<float>(1 - op.alpha);
    descend(op, [alpha, one_minus_alpha, eps = op.eps](auto at, Floats g, auto* moments) {
        const Floats squares = load(moments, at) * alpha + g * g * one_minus_alpha;
        store(moments, at, squares);
        return g / (square_root(squares) + eps);
    });
}

}  // namespace drover::cpu::DROVER_ISA
