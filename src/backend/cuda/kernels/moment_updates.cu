#include "backend/cuda/kernels/leaf_update.cuh"

// The optimizers that keep at most one number per element. PyTorch's SGD, Adagrad and RMSprop add the weight
// decay to the gradient.

namespace drover::cuda {
namespace {

/// before − learning rate · Direction::of(gradient with decay, moment).
template <class Direction>
struct Descent {
    using Row = UpdatedLeaf;
    using Cursor = NoCursor;
    static constexpr int moments = 1;

    struct Constants {
        float learning_rate, weight_decay;
        Direction direction;
    };

    Direction direction;

    __device__ Constants constants(const UpdatedLeaf& leaf, const float* scalars) const {
        Direction of_leaf = direction;
        of_leaf.prepare(leaf);
        return {scalars[StepScalar::learning_rate], leaf.weight_decay, of_leaf};
    }

    __device__ static float after(const Constants& c, const NoCursor&, float g, float before, float& moment,
                                  float&) {
        return fmaf(-c.learning_rate, c.direction.of(fmaf(c.weight_decay, before, g), moment), before);
    }
};

struct SgdDirection {
    float momentum;

    /// The moment of a leaf that keeps none is 0, so it takes g itself.
    __device__ void prepare(const UpdatedLeaf& leaf) {
        if (!leaf.moment[0]) momentum = 0;
    }
    __device__ float of(float g, float& moment) const {
        moment = fmaf(moment, momentum, g);
        return moment;
    }
};

struct AdagradDirection {
    float eps;

    __device__ void prepare(const UpdatedLeaf&) {}
    __device__ float of(float g, float& squares) const {
        squares = fmaf(g, g, squares);
        return g / (sqrtf(squares) + eps);
    }
};

struct RmspropDirection {
    float alpha, one_minus_alpha, eps;

    __device__ void prepare(const UpdatedLeaf&) {}
    __device__ float of(float g, float& squares) const {
        squares = fmaf(squares, alpha, g * g * one_minus_alpha);
        return g / (sqrtf(squares) + eps);
    }
};

template <class Operation, class Direction>
void descend(const Launch& launch, const Operation& op, const Direction& direction, const char* name) {
    std::vector<UpdatedLeaf> rows;
    rows.reserve(op.leaves.size());
    for (const MomentLeaf& leaf : op.leaves) rows.emplace_back(leaf, leaf.moment, Tensor());
    update_leaves(launch, std::move(rows), op.scalars, op.rounding, Descent<Direction>{direction}, name);
}

}  // namespace

void sgd(const Launch& launch, const Sgd& op) {
    descend(launch, op, SgdDirection{op.momentum}, "sgd");
}

void adagrad(const Launch& launch, const Adagrad& op) {
    descend(launch, op, AdagradDirection{op.eps}, "adagrad");
}

void rmsprop(const Launch& launch, const Rmsprop& op) {
    const auto alpha = static_cast<float>(op.alpha), one_minus_alpha = static_cast<float>(1 - op.alpha);
    descend(launch, op, RmspropDirection{alpha, one_minus_alpha, op.eps}, "rmsprop");
}

}  // namespace drover::cuda
