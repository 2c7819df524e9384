#include "backend/cuda/kernels/leaf_update.cuh"
#include "backend/cuda/kernels/matrix_tiles.cuh"

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

    __host__ __device__ bool is_matrix() const { return means == nullptr; }
};

/// Matrices are cut into tiles, vectors into pieces.
std::int64_t chunks_of(const FactoredLeaf& leaf) {
    if (leaf.count == 0) return 0;
    return leaf.is_matrix() ? row_tiles_of(leaf.count / leaf.columns) * column_tiles_of(leaf.columns)
                            : ceil_div(leaf.count, elements_per_chunk);
}

/// What all elements of a leaf are multiplied by.
struct StepSizes {
    float keep, step;

    __device__ StepSizes(const FactoredLeaf& leaf, const float* scalars, double clip_threshold) {
        const double learning_rate = scalars[StepScalar::learning_rate];
        const double excess = sqrt(*leaf.squares / leaf.clipped_elements) / clip_threshold;
        keep = static_cast<float>(1 - learning_rate * leaf.weight_decay);
        // Written so that what is not a number stays so.
        step = static_cast<float>(excess <= 1 ? learning_rate : learning_rate / excess);
    }
};

/// For vectors.
struct AdafactorStep {
    using Row = FactoredLeaf;
    static constexpr int moments = 0;

    struct Constants {
        float keep, step;
        const float* means;
    };

    double clip_threshold;

    __device__ Constants constants(const FactoredLeaf& leaf, const float* scalars) const {
        const StepSizes sizes(leaf, scalars, clip_threshold);
        return {.keep = sizes.keep, .step = sizes.step, .means = leaf.means};
    }

    struct Cursor {
        std::int64_t at;

        __device__ Cursor(const Constants&, std::int64_t first) : at(first) {}
        __device__ void next() { ++at; }
    };

    __device__ static float after(const Constants& c, Cursor& cursor, float g, float before, float&, float&) {
        return fmaf(before, c.keep, -(c.step * g / sqrtf(c.means[cursor.at])));
    }
};

template <class P, class G, bool stochastic>
__global__ void __launch_bounds__(chunk_threads, is_any<P> || sizeof(G) == 4 ? 3 : 4)
    update_tiles(const LeafChunks<FactoredLeaf> leaves, double clip_threshold, const float* scalars,
                 std::uint64_t seed) {
    if (scalars[StepScalar::skips] != 0) return;
    const NumberedChunk numbered = leaves.numbered_chunk();
    const FactoredLeaf& leaf = leaves.rows[numbered.leaf];
    __shared__ float keep_of_block, step_of_block;
    if (threadIdx.x == 0) {
        const StepSizes sizes(leaf, scalars, clip_threshold);
        keep_of_block = sizes.keep;
        step_of_block = sizes.step;
    }
    __syncthreads();
    const float keep = keep_of_block, step = step_of_block;
    const float clip_factor = scalars[StepScalar::clip_factor];
    void* const param = leaf.param;
    const void* const gradient = leaf.gradient;
    float* const master = leaf.master;
    const float* const row_factors = leaf.row_factors;
    const DType param_type = leaf.param_type, gradient_type = leaf.gradient_type;
    const MatrixTile tile(numbered.index, leaf.count / leaf.columns, leaf.columns);
    const bool wide = leaf.wide && tile.columns % 8 == 0;
    const LeafWords noise(leaf.noise, seed, scalars[StepScalar::step]);
    if (tile.column >= tile.columns) return;
    float of_column[8];
    tile.load_columns(leaf.column_factors, of_column);

    constexpr int unrolled = 2;
    for (std::int64_t first = tile.first_row; first < tile.end_row; first += tile_warps * unrolled) {
        Registers<G> g_loaded[unrolled];
        Registers<P> p_loaded[unrolled];
        Eight<float> m_loaded[unrolled];
#pragma unroll
        for (int i = 0; i < unrolled; ++i) {
            const std::int64_t row = first + i * tile_warps;
            if (!wide || row >= tile.end_row) continue;
            g_loaded[i] = load_eight_of<G>(gradient, gradient_type, tile.at(row));
            if (master)
                m_loaded[i] = load_eight_streaming(master + tile.at(row));
            else
                p_loaded[i] = load_eight_of<P>(param, param_type, tile.at(row));
        }
#pragma unroll
        for (int i = 0; i < unrolled; ++i) {
            const std::int64_t row = first + i * tile_warps;
            if (row >= tile.end_row) break;
            const std::int64_t at = tile.at(row);
            const float row_step = step * row_factors[row];
            if (wide) {
                float g[8], value[8];
                to_floats_of<G>(g_loaded[i], gradient_type, g);
                if (master)
                    to_floats(m_loaded[i], value);
                else
                    to_floats_of<P>(p_loaded[i], param_type, value);
#pragma unroll
                for (int e = 0; e < 8; ++e)
                    value[e] = fmaf(value[e], keep, -(row_step * of_column[e] * (g[e] * clip_factor)));
                if (master) store_eight_streaming(master + at, to_eight<float>(value));
                if constexpr (stochastic) {
                    std::uint32_t words[8];
                    noise.draw_eight(at, words);
#pragma unroll
                    for (int e = 0; e < 8; ++e) value[e] = rounded_stochastically(value[e], words[e]);
                }
                store_eight_of<P>(param, param_type, at, value);
            } else {
#pragma unroll
                for (int e = 0; e < 8; ++e) {
                    if (tile.column + e >= tile.columns) break;
                    const float before = master ? master[at + e] : load_one_of(param, param_type, at + e);
                    const float g = load_one_of(gradient, gradient_type, at + e) * clip_factor;
                    float value = fmaf(before, keep, -(row_step * of_column[e] * g));
                    if (master) master[at + e] = value;
                    if constexpr (stochastic) value = rounded_stochastically(value, noise.draw_one(at + e));
                    store_one_of(param, param_type, at + e, value);
                }
            }
        }
    }
}

void update_matrices(const Launch& launch, UpdateTypes types, const LeafChunks<FactoredLeaf>& leaves,
                     const AdafactorUpdate& op) {
    if (leaves.chunks() == 0) return;
    with_update_types(types, [&]<class P, class G, class M>() {
        auto* kernel = update_tiles<P, G, false>;
        if constexpr (!std::is_same_v<P, float>)
            if (op.rounding.stochastic) kernel = update_tiles<P, G, true>;
        kernel<<<leaves.chunks(), chunk_threads, 0, launch.stream>>>(
            leaves, op.clip_threshold, elements<const float>(op.scalars), op.rounding.seed);
    });
}

}  // namespace

void adafactor_update(const Launch& launch, const AdafactorUpdate& op) {
    if (op.leaves.empty()) return;
    std::vector<FactoredLeaf> rows;
    rows.reserve(op.leaves.size());
    for (const AdafactorLeaf& leaf : op.leaves) rows.emplace_back(leaf);
    const auto kind = [](const FactoredLeaf& leaf) { return std::pair(types_of(leaf), leaf.is_matrix()); };
    std::stable_sort(rows.begin(), rows.end(),
                     [&](const FactoredLeaf& a, const FactoredLeaf& b) { return kind(a) < kind(b); });
    const LeafTable<FactoredLeaf> table(launch, rows);
    for (std::size_t begin = 0, end = 0; begin < rows.size(); begin = end) {
        const auto [types, matrices] = kind(rows[begin]);
        while (end < rows.size() && kind(rows[end]) == kind(rows[begin])) ++end;
        if (matrices)
            update_matrices(launch, types, table.part(begin, end), op);
        else
            update_leaves_of(launch, types, table.part(begin, end), op.scalars, op.rounding,
                             AdafactorStep{op.clip_threshold});
        check_launch("adafactor_update");
    }
}

}  // namespace drover::cuda
