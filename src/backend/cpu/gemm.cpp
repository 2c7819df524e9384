#include "backend/cpu/gemm.h"

#include <omp.h>

#include <algorithm>
#include <vector>

#include "backend/cpu/gemm_plans.h"
#include "backend/cpu/thread_scratch.h"
#include "core/convert.h"

namespace drover::cpu {
namespace {

constexpr std::int64_t round_up(std::int64_t count, std::int64_t unit) {
    return (count + unit - 1) / unit * unit;
}

/// Pieces of at most `size`, all but the last one equally long.
struct Cut {
    std::int64_t total;
    std::int64_t size;

    std::int64_t count() const { return (total + size - 1) / size; }
    std::int64_t begin(std::int64_t piece) const { return piece * size; }
    std::int64_t length(std::int64_t piece) const { return std::min(size, total - begin(piece)); }
    bool is_last(std::int64_t piece) const { return piece == count() - 1; }
};

/// How c is cut into tiles, a function of the product's shape alone.
struct Tiling {
    Cut rows;
    Cut columns;

    std::int64_t count() const { return rows.count() * columns.count(); }
};

/// Pieces of nearly equal size, so that no thread waits for another to finish a large last one.
Cut even_cut(std::int64_t total, std::int64_t most) {
    const std::int64_t pieces = (total + most - 1) / most;
    return {total, round_up((total + pieces - 1) / pieces, 32)};
}

/// Whole rows of c, because oneDNN's faster implementation takes packed matrices only: 1.0 of the speed of an
/// uncut product with 256 rows, 0.95 with 128 and 0.9 with 64 (each tile packs b again). Columns are cut only
/// where there are so few rows that most threads would have nothing to do.
Tiling choose_tiling(std::int64_t rows, std::int64_t columns) {
    const std::int64_t size = rows >= 16 * 256 ? 256 : rows >= 4 * 128 ? 128 : 64;
    Tiling tiling{even_cut(rows, size), even_cut(columns, columns)};
    constexpr std::int64_t few = 4, enough = 16, fewest_columns = 128;
    if (tiling.rows.count() < few)
        tiling.columns = even_cut(columns, std::max(fewest_columns, columns * tiling.rows.count() / enough));
    return tiling;
}

/// Address of the element at (row, column) of a stored matrix.
std::byte* element(const Tensor& matrix, std::int64_t row, std::int64_t column) {
    const std::int64_t index = row * matrix.stride(0) + column;
    return static_cast<std::byte*>(matrix.raw()) + index * static_cast<std::int64_t>(size_of(matrix.dtype()));
}

const std::byte* bias_from(const Tensor& bias, std::int64_t column) {
    if (!bias) return nullptr;
    return static_cast<const std::byte*>(bias.raw()) +
           column * static_cast<std::int64_t>(size_of(bias.dtype()));
}

/// Runs body(row tile, column tile, scratch) for every tile. Tiles that share columns of b are consecutive.
template <class Body>
void for_each_tile(const Tiling& tiling, const ThreadScratch& scratch, const Body& body) {
    const std::int64_t tiles = tiling.count(), row_tiles = tiling.rows.count();
#pragma omp parallel if (tiles > 1)
    {
        // Limits oneDNN to one thread, also where this region has only one thread and oneDNN would not notice
        // that it is inside a parallel region.
        omp_set_num_threads(1);
#pragma omp for schedule(dynamic)
        for (std::int64_t tile = 0; tile < tiles; ++tile)
            body(tile % row_tiles, tile / row_tiles, scratch.of(omp_get_thread_num()));
    }
}

/// c = bias, or zero (+ c if accumulate): the result of a product without depth.
void add_bias_only(const Gemm& gemm) {
    const std::int64_t rows = gemm.c.size(0), columns = gemm.c.size(1);
    std::vector<float> sum(static_cast<std::size_t>(columns)), bias(sum.size());
    if (gemm.bias) convert_elements(gemm.bias.raw(), gemm.bias.dtype(), bias.data(), DType::f32, columns);
    for (std::int64_t row = 0; row < rows; ++row) {
        std::byte* c = element(gemm.c, row, 0);
        std::ranges::fill(sum, 0.f);
        if (gemm.accumulate) convert_elements(c, gemm.c.dtype(), sum.data(), DType::f32, columns);
        for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += bias[i];
        convert_elements(sum.data(), DType::f32, c, gemm.c.dtype(), columns);
    }
}

}  // namespace

struct GemmEngine::Plans {
    explicit Plans(const BackendSettings& settings) : cache(settings) {}

    PlanCache cache;
    ThreadScratch scratch;

    bool needs_copies(const Gemm& gemm) const;
    void run_directly(const Gemm& gemm, std::int64_t depth);
    void run_copied(const Gemm& gemm, std::int64_t depth);
};

/// True for bf16 without instructions for it, and with AVX2: its kernels walk down the columns of the
/// operands in place, and rows that are pages apart share one cache set, which leaves a third of the speed.
bool GemmEngine::Plans::needs_copies(const Gemm& gemm) const {
    if (gemm.a.dtype() == DType::bf16) return !cache.fast_bf16();
    constexpr std::int64_t page = 4096 / sizeof(float);
    return !cache.avx512() && ((gemm.transpose_a && gemm.a.stride(0) % page == 0) ||
                               (!gemm.transpose_b && gemm.b.stride(0) % page == 0));
}

/// Each tile is one oneDNN product over the whole depth.
void GemmEngine::Plans::run_directly(const Gemm& gemm, std::int64_t depth) {
    const Tiling tiling = choose_tiling(gemm.c.size(0), gemm.c.size(1));
    const Plan* plans[2][2];  // [last row tile][last column tile]
    std::size_t scratch_bytes = 0;
    for (bool last_row : {false, true})
        for (bool last_column : {false, true}) {
            const Plan& plan = cache.find({
                .rows = tiling.rows.length(last_row ? tiling.rows.count() - 1 : 0),
                .columns = tiling.columns.length(last_column ? tiling.columns.count() - 1 : 0),
                .depth = depth,
                .a_stride = gemm.a.stride(0),
                .b_stride = gemm.b.stride(0),
                .c_stride = gemm.c.stride(0),
                .input = gemm.a.dtype(),
                .output = gemm.c.dtype(),
                .bias = gemm.bias ? gemm.bias.dtype() : DType::f32,
                .has_bias = static_cast<bool>(gemm.bias),
                .transpose_a = gemm.transpose_a,
                .transpose_b = gemm.transpose_b,
                .accumulate = gemm.accumulate,
            });
            plans[last_row][last_column] = &plan;
            scratch_bytes = std::max(scratch_bytes, plan.scratch_bytes());
        }
    scratch.reserve(omp_get_max_threads(), scratch_bytes);
    for_each_tile(tiling, scratch, [&](std::int64_t row_tile, std::int64_t column_tile, std::byte* own) {
        const std::int64_t row = tiling.rows.begin(row_tile), column = tiling.columns.begin(column_tile);
        plans[tiling.rows.is_last(row_tile)][tiling.columns.is_last(column_tile)]->run(
            gemm.transpose_a ? element(gemm.a, 0, row) : element(gemm.a, row, 0),
            gemm.transpose_b ? element(gemm.b, column, 0) : element(gemm.b, 0, column),
            element(gemm.c, row, column), bias_from(gemm.bias, column), own);
    });
}

namespace {

/// Packed fp32 copies of a tile's operands for one piece of the depth, and the tile's sums; all in one
/// thread's scratch.
struct CopiedTile {
    // Larger ones would leave the caches, smaller ones convert the same elements more often.
    static constexpr std::int64_t size = 256, depth = 512;
    /// Padding of the rows of a transposed a: columns a power of two apart would fall into one cache set.
    static constexpr std::int64_t padding = 16;
    static constexpr std::size_t bytes = ((2 * size + padding) * depth + 2 * size * size) * sizeof(float);

    float* a;
    float* b;
    float* sums;  ///< [rows, columns]
    float* row;   ///< [columns]
    std::byte* scratch;

    explicit CopiedTile(std::byte* memory)
        : a(reinterpret_cast<float*>(memory)),
          b(a + (size + padding) * depth),
          sums(b + size * depth),
          row(sums + size * size),
          scratch(memory + bytes) {}
};

/// Square tiles, so that the elements of both operands are converted equally often.
Tiling choose_copied_tiling(std::int64_t rows, std::int64_t columns) {
    constexpr std::int64_t enough = 16;
    const Tiling large{even_cut(rows, CopiedTile::size), even_cut(columns, CopiedTile::size)};
    if (large.count() >= enough) return large;
    return {even_cut(rows, CopiedTile::size / 2), even_cut(columns, CopiedTile::size / 2)};
}

/// Rows [row, row + rows) and columns [column, column + columns) of a stored matrix as fp32.
void copy_tile(const Tensor& matrix, std::int64_t row, std::int64_t rows, std::int64_t column,
               std::int64_t columns, float* to, std::int64_t stride) {
    for (std::int64_t i = 0; i < rows; ++i)
        convert_elements(element(matrix, row + i, column), matrix.dtype(), to + i * stride, DType::f32,
                         columns);
}

/// One row of a finished tile: adds bias and c, and stores it.
void finish_row(const Gemm& gemm, float* sums, float* other, std::int64_t row, std::int64_t column,
                std::int64_t columns) {
    const auto add = [&](const void* from, DType dtype) {
        convert_elements(from, dtype, other, DType::f32, columns);
        for (std::int64_t i = 0; i < columns; ++i) sums[i] += other[i];
    };
    std::byte* c = element(gemm.c, row, column);
    if (gemm.bias) add(bias_from(gemm.bias, column), gemm.bias.dtype());
    if (gemm.accumulate) add(c, gemm.c.dtype());
    convert_elements(sums, DType::f32, c, gemm.c.dtype(), columns);
}

}  // namespace

/// For operands that oneDNN is slow with in place: their tiles are first copied to packed fp32.
void GemmEngine::Plans::run_copied(const Gemm& gemm, std::int64_t depth) {
    const Tiling tiling = choose_copied_tiling(gemm.c.size(0), gemm.c.size(1));
    const Cut pieces{depth, CopiedTile::depth};

    const auto plan_for = [&](std::int64_t rows, std::int64_t columns, std::int64_t piece) -> const Plan& {
        const std::int64_t length = pieces.length(piece);
        return cache.find({.rows = rows,
                           .columns = columns,
                           .depth = length,
                           .a_stride = gemm.transpose_a ? rows + CopiedTile::padding : length,
                           .b_stride = gemm.transpose_b ? length : columns,
                           .c_stride = columns,
                           .input = DType::f32,
                           .output = DType::f32,
                           .transpose_a = gemm.transpose_a,
                           .transpose_b = gemm.transpose_b,
                           .accumulate = piece > 0});
    };
    // The first piece overwrites the sums; of those that add to them, the last one may be shorter.
    const auto kind_of = [&](std::int64_t piece) { return piece == 0 ? 0 : pieces.is_last(piece) ? 2 : 1; };
    const Plan* plans[2][2][3];  // [last row tile][last column tile][kind of piece]
    std::size_t scratch_bytes = 0;
    for (bool last_row : {false, true})
        for (bool last_column : {false, true})
            for (std::int64_t piece : {std::int64_t{0}, std::int64_t{1}, pieces.count() - 1}) {
                if (piece >= pieces.count()) continue;
                const Plan& plan =
                    plan_for(tiling.rows.length(last_row ? tiling.rows.count() - 1 : 0),
                             tiling.columns.length(last_column ? tiling.columns.count() - 1 : 0), piece);
                plans[last_row][last_column][kind_of(piece)] = &plan;
                scratch_bytes = std::max(scratch_bytes, plan.scratch_bytes());
            }
    scratch.reserve(omp_get_max_threads(), CopiedTile::bytes + scratch_bytes);
    for_each_tile(tiling, scratch, [&](std::int64_t row_tile, std::int64_t column_tile, std::byte* own) {
        const CopiedTile tile(own);
        const std::int64_t row = tiling.rows.begin(row_tile), rows = tiling.rows.length(row_tile);
        const std::int64_t column = tiling.columns.begin(column_tile),
                           columns = tiling.columns.length(column_tile);
        for (std::int64_t piece = 0; piece < pieces.count(); ++piece) {
            const std::int64_t begin = pieces.begin(piece), length = pieces.length(piece);
            if (gemm.transpose_a)
                copy_tile(gemm.a, begin, length, row, rows, tile.a, rows + CopiedTile::padding);
            else
                copy_tile(gemm.a, row, rows, begin, length, tile.a, length);
            if (gemm.transpose_b)
                copy_tile(gemm.b, column, columns, begin, length, tile.b, length);
            else
                copy_tile(gemm.b, begin, length, column, columns, tile.b, columns);
            plans[tiling.rows.is_last(row_tile)][tiling.columns.is_last(column_tile)][kind_of(piece)]->run(
                tile.a, tile.b, tile.sums, nullptr, tile.scratch);
        }
        for (std::int64_t i = 0; i < rows; ++i)
            finish_row(gemm, tile.sums + i * columns, tile.row, row + i, column, columns);
    });
}

GemmEngine::GemmEngine(const BackendSettings& settings) : plans_(std::make_unique<Plans>(settings)) {}

GemmEngine::~GemmEngine() = default;

void GemmEngine::run(const Gemm& gemm) {
    const std::int64_t depth = gemm.a.size(gemm.transpose_a ? 0 : 1);
    if (gemm.c.numel() == 0) return;
    if (depth == 0) return add_bias_only(gemm);
    plans_->cache.trim();
    if (plans_->needs_copies(gemm))
        plans_->run_copied(gemm, depth);
    else
        plans_->run_directly(gemm, depth);
}

}  // namespace drover::cpu
