#pragma once

#include <cmath>
#include <vector>

#include "backend/backend_under_test.h"

namespace drover::test {

/// The scalars of update `step`, with those that the optimizers other than AdamW read.
inline Tensor step_scalars(Workbench& bench, double learning_rate, int step, double clip_factor = 1) {
    std::vector<float> scalars(StepScalar::count, std::nanf(""));
    scalars[StepScalar::learning_rate] = static_cast<float>(learning_rate);
    scalars[StepScalar::clip_factor] = static_cast<float>(clip_factor);
    scalars[StepScalar::step] = static_cast<float>(step);
    scalars[StepScalar::newest_share] = static_cast<float>(std::pow(step, -0.8));
    scalars[StepScalar::skips] = 0;
    return bench.put(Tensor::of(scalars.data(), {StepScalar::count}));
}

/// Adafactor on whole tensors. A tensor of three dimensions is a stack of matrices that are clipped together.
class AdafactorRun {
  public:
    explicit AdafactorRun(Workbench& bench) : bench_(bench) {}

    struct Leaf {
        Tensor param, master;
        Tensor rows, columns;  ///< mean squares of matrices: [R] or [E,R], [C] or [E,C]
        Tensor means;          ///< of vectors
        Tensor gradient;
    };

    /// Returns its index.
    std::size_t add(const Tensor& param, DType gradient_type, double weight_decay, bool with_master = false) {
        Leaf leaf{.param = bench_.put(param),
                  .master = with_master ? bench_.put(param, DType::f32) : Tensor(),
                  .rows = {},
                  .columns = {},
                  .means = {},
                  .gradient = bench_.make(gradient_type, param.shape())};
        const Tensor squares = zeros(DType::f64, {1});
        const auto elements = static_cast<double>(param.numel());
        const std::int64_t count = param.rank() == 3 ? param.size(0) : 1;
        const auto part = [count](const Tensor& whole, std::int64_t index, const Shape& shape) {
            if (!whole) return Tensor();
            const std::int64_t share = whole.size(0) / count;
            return whole.rows(index * share, share).view(shape);
        };
        if (param.rank() == 1) {
            leaf.means = zeros(DType::f32, param.shape());
            leaves_.push_back({.param = leaf.param,
                               .gradient = leaf.gradient,
                               .means = leaf.means,
                               .squares = squares,
                               .clipped_elements = elements,
                               .master = leaf.master,
                               .weight_decay = static_cast<float>(weight_decay)});
        } else {
            const std::int64_t rows = param.size(param.rank() - 2), columns = param.size(param.rank() - 1);
            leaf.rows = zeros(DType::f32, {count, rows});
            leaf.columns = zeros(DType::f32, {count, columns});
            for (std::int64_t i = 0; i < count; ++i) {
                const AdafactorMatrix matrix{.row_sums = zeros(DType::f32, {rows}),
                                             .column_sums = zeros(DType::f32, {columns}),
                                             .row_means = part(leaf.rows, i, {rows}),
                                             .column_means = part(leaf.columns, i, {columns})};
                matrices_.push_back(matrix);
                leaves_.push_back({.param = part(leaf.param, i, {rows, columns}),
                                   .gradient = part(leaf.gradient, i, {rows, columns}),
                                   .rows = matrix.row_sums,
                                   .columns = matrix.column_sums,
                                   .squares = squares,
                                   .clipped_elements = elements,
                                   .master = part(leaf.master, i, {rows, columns}),
                                   .weight_decay = static_cast<float>(weight_decay)});
            }
        }
        whole_.push_back(leaf);
        return whole_.size() - 1;
    }

    void set_gradient(std::size_t leaf, const Tensor& gradient) {
        bench_.backend().copy(bench_.backend().main_stream(), gradient, whole_[leaf].gradient);
    }

    void step(double learning_rate, int number, double clip_factor = 1) {
        const Tensor scalars = step_scalars(bench_, learning_rate, number, clip_factor);
        for (const AdafactorMatrix& matrix : matrices_) {
            bench_.run(Fill{.x = matrix.row_sums, .value = 0});
            bench_.run(Fill{.x = matrix.column_sums, .value = 0});
        }
        for (const AdafactorLeaf& leaf : leaves_) bench_.run(Fill{.x = leaf.squares, .value = 0});
        bench_.run(AdafactorSums{.leaves = leaves_, .scalars = scalars});
        bench_.run(AdafactorFactors{.matrices = matrices_, .scalars = scalars});
        bench_.run(AdafactorSquares{.leaves = leaves_, .scalars = scalars});
        bench_.run(AdafactorUpdate{.leaves = leaves_, .scalars = scalars});
    }

    const Leaf& operator[](std::size_t leaf) const { return whole_[leaf]; }

  private:
    Tensor zeros(DType dtype, const Shape& shape) {
        const Tensor tensor = bench_.make(dtype, shape);
        bench_.run(Fill{.x = tensor, .value = 0});
        return tensor;
    }

    Workbench& bench_;
    std::vector<Leaf> whole_;
    std::vector<AdafactorLeaf> leaves_;
    std::vector<AdafactorMatrix> matrices_;
};

}  // namespace drover::test
