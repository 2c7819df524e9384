#include "backend/cuda/kernels/leaf_update.cuh"

namespace drover::cuda {
namespace {

struct FactoredLeaf : UpdatedLeaf {
    const float *row_factors, *column_factors;  ///< null for vectors
    const float* means;                         ///< null for matrices
    const double* squares;
    double clipped_elements;
    std::int64_t columns;

    FactoredLeaf() = default;
    explicit FactoredLeaf(const AdafactorLeaf& leaf)
        : UpdatedLeaf(leaf, Tensor(), Tensor()),
          row_factors(elements<float>(leaf.rows)),
          column_factors(elements<float>(leaf.columns)),
          means(elements<float>(leaf.means)),
          squares(elements<double>(leaf.squares)),
          clipped_elements(leaf.clipped_elements),
          columns(leaf.param.rank() == 2 ? leaf.param.size(1) : 1) {
        if (leaf.param.rank() == 2) means = nullptr;
    }
};

struct AdafactorStep {
    using Row = FactoredLeaf;
    static constexpr int moments = 0;

    struct Constants {
        float keep, step;
        const float *row_factors, *column_factors, *means;
        std::int64_t columns;
    };

    double clip_threshold;

    __device__ Constants constants(const FactoredLeaf& leaf, const float* scalars) const {
        const double learning_rate = scalars[StepScalar::learning_rate];
        const double excess = sqrt(*leaf.squares / leaf.clipped_elements) / clip_threshold;
        return {.keep = static_cast<float>(1 - learning_rate * leaf.weight_decay),
                // Written so that what is not a number stays so.
                .step = static_cast<float>(excess <= 1 ? learning_rate : learning_rate / excess),
                .row_factors = leaf.row_factors,
                .column_factors = leaf.column_factors,
                .means = leaf.means,
                .columns = leaf.columns};
    }

    /// Where an element stands in its matrix, and its row's step; of a vector, its mean square.
    struct Cursor {
        const Constants& constants;
        std::int64_t at, row = 0;
        float row_step = 0;

        __device__ Cursor(const Constants& given, std::int64_t first) : constants(given), at(first) {
            if (constants.means) return;
            row = first / constants.columns;
            at = first - row * constants.columns;
            row_step = constants.step * constants.row_factors[row];
        }
        /// Goes to the next row only when an element of it is asked for: there is none behind the last.
        __device__ void next() { ++at; }
        __device__ void enter_row() {
            if (at < constants.columns) return;
            at = 0;
            row_step = constants.step * constants.row_factors[++row];
        }
    };

    __device__ static float after(const Constants& c, Cursor& cursor, float g, float before, float&, float&) {
        if (c.means) return fmaf(before, c.keep, -(c.step * g / sqrtf(c.means[cursor.at])));
        cursor.enter_row();
        return fmaf(before, c.keep, -(cursor.row_step * c.column_factors[cursor.at] * g));
    }
};

}  // namespace

void adafactor_update(const Launch& launch, const AdafactorUpdate& op) {
    std::vector<FactoredLeaf> rows;
    rows.reserve(op.leaves.size());
    for (const AdafactorLeaf& leaf : op.leaves) rows.emplace_back(leaf);
    update_leaves(launch, std::move(rows), op.scalars, op.rounding, AdafactorStep{op.clip_threshold},
                  "adafactor_update");
}

}  // namespace drover::cuda
