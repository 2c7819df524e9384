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

/// Factors that all elements of a leaf share.
struct StepSizes {
    float keep, step;

    __device__ StepSizes(const FactoredLeaf& leaf, const float* scalars, double clip_threshold) {
        const double learning_rate = scalars[StepScalar::learning_rate];
        const double excess = sqrt(*leaf.squares / leaf.clipped_elements) / clip_threshold;
        keep = static_cast<float>(1 - learning_rate * leaf.weight_decay);
        // Written so that NaN stays NaN.
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

/// A thread's state for its tile of a matrix.
struct TileUpdate {
    MatrixTile tile;
    float keep, step, clip_factor;
    float of_column[8];

    /// The new values of eight elements of a row.
    __device__ void apply(float row_factor, const float (&g)[8], float (&value)[8]) const {
        const float of_row = step * row_factor;
#pragma unroll
        for (int e = 0; e < 8; ++e)
            value[e] = fmaf(value[e], keep, -(of_row * of_column[e] * (g[e] * clip_factor)));
    }
};

/// Rows that are not aligned for eights.
template <bool stochastic>
__device__ void update_by_element(const FactoredLeaf& leaf, const TileUpdate& update,
                                  const LeafWords& noise) {
    const MatrixTile& tile = update.tile;
#pragma unroll 1
    for (std::int64_t row = tile.first_row; row < tile.end_row; row += tile_warps) {
        float g[8] = {}, value[8] = {};
        const std::int64_t at = tile.at(row);
        const auto for_each_inside = [&](const auto& body) {
#pragma unroll
            for (int e = 0; e < 8; ++e)
                if (tile.column + e < tile.columns) body(e, at + e);
        };
        for_each_inside([&](int e, std::int64_t i) {
            g[e] = load_one_of(leaf.gradient, leaf.gradient_type, i);
            value[e] = leaf.master ? leaf.master[i] : load_one_of(leaf.param, leaf.param_type, i);
        });
        update.apply(leaf.row_factors[row], g, value);
        for_each_inside([&](int e, std::int64_t i) {
            if (leaf.master) leaf.master[i] = value[e];
            if constexpr (stochastic) value[e] = rounded_stochastically(value[e], noise.draw_one(i));
            store_one_of(leaf.param, leaf.param_type, i, value[e]);
        });
    }
}

template <class P, class G, bool with_master, bool stochastic>
__device__ void update_by_eights(const FactoredLeaf& leaf, const TileUpdate& update, const LeafWords& noise) {
    using From = std::conditional_t<with_master, float, P>;
    constexpr int unrolled = sizeof(Registers<G>) + sizeof(Registers<From>) > 32 ? 2 : 4;
    const MatrixTile& tile = update.tile;
    void* const param = leaf.param;
    const void* const gradient = leaf.gradient;
    const void* const from = with_master ? leaf.master : leaf.param;
    const float* const row_factors = leaf.row_factors;
    const DType param_type = leaf.param_type, gradient_type = leaf.gradient_type;
    for (std::int64_t first = tile.first_row; first < tile.end_row; first += tile_warps * unrolled) {
        Registers<G> g_loaded[unrolled];
        Registers<From> loaded[unrolled];
#pragma unroll
        for (int i = 0; i < unrolled; ++i) {
            const std::int64_t row = first + i * tile_warps;
            if (row >= tile.end_row) break;
            g_loaded[i] = load_eight_of<G>(gradient, gradient_type, tile.at(row));
            loaded[i] = load_eight_of<From>(from, param_type, tile.at(row));
        }
#pragma unroll
        for (int i = 0; i < unrolled; ++i) {
            const std::int64_t row = first + i * tile_warps, at = tile.at(row);
            if (row >= tile.end_row) break;
            float g[8], value[8];
            to_floats_of<G>(g_loaded[i], gradient_type, g);
            to_floats_of<From>(loaded[i], param_type, value);
            update.apply(row_factors[row], g, value);
            if constexpr (with_master) store_eight_streaming(leaf.master + at, to_eight<float>(value));
            if constexpr (stochastic) {
                std::uint32_t words[8];
                noise.draw_eight(at, words);
#pragma unroll
                for (int e = 0; e < 8; ++e) value[e] = rounded_stochastically(value[e], words[e]);
            }
            store_eight_of<P>(param, param_type, at, value);
        }
    }
}

template <class P, class G, bool stochastic>
__global__ void __launch_bounds__(chunk_threads, 3)
    update_tiles(const LeafChunks<FactoredLeaf> leaves, double clip_threshold, const float* scalars,
                 std::uint64_t seed) {
    const NumberedChunk numbered = leaves.numbered_chunk();
    const FactoredLeaf& leaf = leaves.rows[numbered.leaf];
    __shared__ float keep, step;
    __shared__ bool skips;
    if (threadIdx.x == 0) {
        skips = scalars[StepScalar::skips] != 0;
        const StepSizes sizes(leaf, scalars, clip_threshold);
        keep = sizes.keep;
        step = sizes.step;
    }
    __syncthreads();
    if (skips) return;
    TileUpdate update{.tile = MatrixTile(numbered.index, leaf.count / leaf.columns, leaf.columns),
                      .keep = keep,
                      .step = step,
                      .clip_factor = scalars[StepScalar::clip_factor]};
    if (update.tile.column >= leaf.columns) return;
    update.tile.load_columns(leaf.column_factors, update.of_column);
    const LeafWords noise(leaf.noise, seed, scalars[StepScalar::step]);
    if (!leaf.wide || leaf.columns % 8 != 0)
        update_by_element<stochastic>(leaf, update, noise);
    else if (leaf.master)
        update_by_eights<P, G, true, stochastic>(leaf, update, noise);
    else
        update_by_eights<P, G, false, stochastic>(leaf, update, noise);
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
