#include "backend/cpu/kernels.h"
#include "backend/cpu/kernels/column_sums.h"
#include "backend/cpu/kernels/double_sums.h"
#include "backend/cpu/kernels/leaf_update.h"

namespace drover::cpu::DROVER_ISA {
namespace {

bool is_matrix(const AdafactorLeaf& leaf) {
    return leaf.gradient.rank() == 2;
}

/// 1 − s and s: the weights of an exponential moving average.
struct Shares {
    float old, newest;

    explicit Shares(const float* scalars)
        : old(static_cast<float>(1 - static_cast<double>(scalars[StepScalar::newest_share]))),
          newest(scalars[StepScalar::newest_share]) {}
};

/// Adds the sums of a leaf's squares to those of its rows and columns.
template <class G>
void add_squares(const AdafactorLeaf& leaf, float clip_factor) {
    // A block of rows is small enough to be still in a cache when the columns are summed.
    constexpr std::int64_t elements_per_block = 1 << 18;
    const std::int64_t rows = leaf.gradient.size(0), columns = leaf.gradient.size(1);
    const std::int64_t block_rows = columns < elements_per_block ? elements_per_block / columns : 1;
    const auto* gradient = static_cast<const G*>(leaf.gradient.raw());
    auto* row_sums = static_cast<float*>(leaf.rows.raw());
    auto* column_sums = static_cast<float*>(leaf.columns.raw());
    const auto square = [clip_factor](const G* row, auto at) {
        const Floats g = load(row, at) * clip_factor;
        return g * g;
    };
    for (std::int64_t begin = 0; begin < rows; begin += block_rows) {
        const std::int64_t count = begin + block_rows < rows ? block_rows : rows - begin;
        const G* block = gradient + begin * columns;
        for_each_row(count, columns, [&](std::int64_t row) {
            Floats sum = {};
            for_each_vector(columns, [&](auto at) { sum += square(block + row * columns, at); });
            row_sums[begin + row] += sum_of_lanes(sum);
        });
        sum_columns(count, columns, column_sums, true,
                    [&](std::int64_t row, std::int64_t first_column, std::int64_t width, float* sums) {
                        const G* piece = block + row * columns + first_column;
                        for_each_vector(
                            width, [&](auto at) { store(sums, at, load(sums, at) + square(piece, at)); });
                    });
    }
}

/// means ← old · means + newest · (sums / count + eps)
void update_means(float* means, const float* sums, std::int64_t length, std::int64_t count, Shares shares,
                  float eps) {
    const auto divisor = static_cast<float>(count);
    for_each_vector(length, [&](auto at) {
        store(means, at, load(means, at) * shares.old + (load(sums, at) / divisor + eps) * shares.newest);
    });
}

/// factors = (means / scale)^−½
void factors_of(const float* means, float scale, std::int64_t length, float* factors) {
    for_each_vector(length, [&](auto at) { store(factors, at, 1.f / square_root(load(means, at) / scale)); });
}

/// Σ U² of a matrix, in slices of rows that depend on its shape alone.
template <class G>
double squared_update(const AdafactorLeaf& leaf, float clip_factor) {
    constexpr std::int64_t max_slices = 256;
    const std::int64_t rows = leaf.gradient.size(0), columns = leaf.gradient.size(1);
    const std::int64_t share = (rows + max_slices - 1) / max_slices;
    const std::int64_t worthwhile = (elements_per_task + columns - 1) / columns;
    const std::int64_t slice_rows = share > worthwhile ? share : worthwhile;
    const auto* gradient = static_cast<const G*>(leaf.gradient.raw());
    const auto* row_factors = static_cast<const float*>(leaf.rows.raw());
    const auto* column_factors = static_cast<const float*>(leaf.columns.raw());
    double slices[max_slices] = {};
    for_each_range(rows, slice_rows, [&](std::int64_t begin, std::int64_t end) {
        double slice = 0;
        for (std::int64_t row = begin; row < end; ++row) {
            const float factor = clip_factor * row_factors[row];
            Floats sum = {};
            for_each_vector(columns, [&](auto at) {
                const Floats u = load(gradient + row * columns, at) * factor * load(column_factors, at);
                sum += u * u;
            });
            slice += static_cast<double>(sum_of_lanes(sum));
        }
        slices[begin / slice_rows] = slice;
    });
    double total = 0;
    for (const double slice : slices) total += slice;
    return total;
}

/// The same for a vector, whose mean squares are updated first.
template <class G>
double squared_vector_update(const AdafactorLeaf& leaf, float clip_factor, Shares shares, float eps) {
    const auto* gradient = static_cast<const G*>(leaf.gradient.raw());
    auto* means = static_cast<float*>(leaf.means.raw());
    double total = 0;
    for_each_vector(leaf.gradient.numel(), [&](auto at) {
        const Floats g = load(gradient, at) * clip_factor;
        const Floats mean = load(means, at) * shares.old + (g * g + eps) * shares.newest;
        store(means, at, mean);
        total += static_cast<double>(sum_of_lanes(g * g / mean));
    });
    return total;
}

}  // namespace

void adafactor_sums(const AdafactorSums& op) {
    const float clip_factor = static_cast<const float*>(op.scalars.raw())[StepScalar::clip_factor];
    for (const AdafactorLeaf& leaf : op.leaves)
        if (is_matrix(leaf) && leaf.counted && leaf.gradient.numel() > 0)
            with_type(leaf.gradient.dtype(), [&](auto g) { add_squares<decltype(g)>(leaf, clip_factor); });
}

void adafactor_factors(const AdafactorFactors& op) {
    if (skips(op.scalars)) return;
    const Shares shares(static_cast<const float*>(op.scalars.raw()));
    for_each_range(static_cast<std::int64_t>(op.matrices.size()), 1, [&](std::int64_t index, std::int64_t) {
        const AdafactorMatrix& matrix = op.matrices[static_cast<std::size_t>(index)];
        const std::int64_t rows = matrix.row_sums.size(0), columns = matrix.column_sums.size(0);
        auto* row_sums = static_cast<float*>(matrix.row_sums.raw());
        auto* column_sums = static_cast<float*>(matrix.column_sums.raw());
        auto* row_means = static_cast<float*>(matrix.row_means.raw());
        auto* column_means = static_cast<float*>(matrix.column_means.raw());
        update_means(row_means, row_sums, rows, columns, shares, op.eps);
        update_means(column_means, column_sums, columns, rows, shares, op.eps);
        const double total = sum_in_double(row_means, rows, [](Doubles x) { return x; });
        factors_of(row_means, static_cast<float>(total / static_cast<double>(rows)), rows, row_sums);
        factors_of(column_means, 1, columns, column_sums);
    });
}

void adafactor_squares(const AdafactorSquares& op) {
    if (skips(op.scalars)) return;
    const auto* scalars = static_cast<const float*>(op.scalars.raw());
    const float clip_factor = scalars[StepScalar::clip_factor];
    const Shares shares(scalars);
    for (const AdafactorLeaf& leaf : op.leaves) {
        if (leaf.gradient.numel() == 0 || (is_matrix(leaf) && !leaf.counted)) continue;
        with_type(leaf.gradient.dtype(), [&](auto type) {
            using G = decltype(type);
            const double sum = is_matrix(leaf) ? squared_update<G>(leaf, clip_factor)
                                               : squared_vector_update<G>(leaf, clip_factor, shares, op.eps);
            if (leaf.counted) *static_cast<double*>(leaf.squares.raw()) += sum;
        });
    }
}

void adafactor_update(const AdafactorUpdate& op) {
    if (skips(op.scalars)) return;
    const auto* scalars = static_cast<const float*>(op.scalars.raw());
    const double learning_rate = scalars[StepScalar::learning_rate];
    for (const AdafactorLeaf& leaf : op.leaves) {
        const double squares = *static_cast<const double*>(leaf.squares.raw());
        const double excess = __builtin_sqrt(squares / leaf.clipped_elements) / op.clip_threshold;
        // Written so that NaN stays NaN.
        const auto step = static_cast<float>(excess <= 1 ? learning_rate : learning_rate / excess);
        const auto keep = static_cast<float>(1 - learning_rate * leaf.weight_decay);
        with_leaf_update(leaf, scalars, op.rounding, [&](const auto& update) {
            if (!is_matrix(leaf)) {
                const auto* means = static_cast<const float*>(leaf.means.raw());
                update.run([=](auto at, Floats g, Floats before) {
                    return before * keep - step * g / square_root(load(means, at));
                });
                return;
            }
            const std::int64_t rows = leaf.param.size(0), columns = leaf.param.size(1);
            const auto* row_factors = static_cast<const float*>(leaf.rows.raw());
            const auto* column_factors = static_cast<const float*>(leaf.columns.raw());
            for_each_row(rows, columns, [&](std::int64_t row) {
                const std::int64_t begin = row * columns;
                const float row_step = step * row_factors[row];
                update.run(begin, begin + columns, [=](auto at, Floats g, Floats before) {
                    at.begin -= begin;
                    return before * keep - row_step * load(column_factors, at) * g;
                });
            });
        });
    }
}

}  // namespace drover::cpu::DROVER_ISA
