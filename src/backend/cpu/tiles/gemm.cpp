#include "backend/cpu/tiles/gemm.h"

#include <omp.h>

#include "backend/cpu/kernels/integer_math.h"
#include "backend/cpu/tiles/pack.h"

namespace drover::cpu::tiles {
namespace {

/// c is made in squares of 2 × 2 tiles: four sums, two tiles of each operand.
constexpr std::int64_t square = 2 * tile_width;

constexpr std::int64_t tiles_in(std::int64_t width) {
    return (width + tile_width - 1) / tile_width;
}

/// Sizes that keep a piece in a core's caches: tiles of the packed right operand, columns × depth, come from
/// the second level.
struct CacheSizes {
    std::int64_t right_elements, depth, block_rows;
};
constexpr CacheSizes for_amx{768 * 1024, 1024, 128};  // 1.5 of the 2 MiB that all processors with AMX have
constexpr CacheSizes for_vectors{128 * 1024, 512,
                                 128};  // a quarter of 1 MiB: blocks of the left one are there too

constexpr CacheSizes sizes_for(TileUnit unit) {
    return unit == TileUnit::amx ? for_amx : for_vectors;
}

/// Rows whose sums are kept when the depth is cut: the right operand is packed again for each such group.
constexpr std::int64_t most_rows = 2048;

/// Pieces of nearly one size, a multiple of `unit` and at most `most`.
struct Cut {
    std::int64_t total, size;

    Cut(std::int64_t total_, std::int64_t most, std::int64_t unit) : total(total_) {
        const std::int64_t pieces = (total + most - 1) / most;
        size = round_up((total + pieces - 1) / pieces, unit);
    }
    std::int64_t length(std::int64_t begin) const { return total - begin < size ? total - begin : size; }
};

/// How a product is cut, by its shape alone.
struct Blocking {
    Cut rows, depth, columns;
    std::int64_t block_rows;

    Blocking(const Gemm& gemm, const CacheSizes& sizes)
        : rows(gemm.c.size(0), most_rows, square),
          depth(gemm.a.size(gemm.transpose_a ? 0 : 1), sizes.depth, tile_depth),
          columns(gemm.c.size(1), sizes.right_elements / depth.size / square * square, square),
          // Small enough that there is a block for every thread.
          block_rows(rows.total >= 1024  ? sizes.block_rows
                     : rows.total >= 256 ? 64
                                         : square) {}

    bool depth_is_cut() const { return depth.size < depth.total; }
    std::size_t right_bytes() const {
        return static_cast<std::size_t>(columns.size * round_up(depth.size, tile_depth)) * sizeof(bf16);
    }
    std::size_t sum_bytes() const {
        return depth_is_cut() ? static_cast<std::size_t>(rows.size * columns.size) * sizeof(float) : 0;
    }
};

/// c = sums + bias (+ c) for rows × columns ≤ 32 × 32 elements.
template <class Out>
void finish_square(const float* sums, std::int64_t rows, std::int64_t columns, const float* bias,
                   bool accumulate, Out* c, std::int64_t stride) {
    for (std::int64_t row = 0; row < rows; ++row) {
        const float* row_sums = sums + row / tile_width * 2 * tile_floats + row % tile_width * tile_width;
        for_each_vector(columns, [&](auto at) {
            Floats result =
                load_vector(row_sums + at.begin / tile_width * tile_floats) + load_vector(bias + at.begin);
            if (accumulate) result += load(c + row * stride, at);
            store(c + row * stride, at, result);
        });
    }
}

/// One product, for the threads of a parallel region that all call run().
template <class Unit>
class Product {
  public:
    Product(const Gemm& gemm, const CacheSizes& sizes, const Scratch& scratch)
        : gemm_(gemm),
          blocking_(gemm, sizes),
          left_{data_of<const bf16>(gemm.a), gemm.a.stride(0), gemm.transpose_a},
          right_{data_of<const bf16>(gemm.b), gemm.b.stride(0), !gemm.transpose_b},
          packed_right_(scratch.shared),
          kept_sums_(reinterpret_cast<float*>(scratch.shared + round_up(blocking_.right_bytes(), 64))),
          scratch_(scratch) {}

    void run() const {
        Unit::begin();
        std::byte* packed_left = scratch_.of_thread[omp_get_thread_num()];
        const auto& [rows, depth, columns, block_rows] = blocking_;
        for (std::int64_t row = 0; row < rows.total; row += rows.size)
            for (std::int64_t column = 0; column < columns.total; column += columns.size)
                for (std::int64_t k = 0; k < depth.total; k += depth.size) {
                    pack_right(column, columns.length(column), k, depth.length(k));
                    const std::int64_t blocks = (rows.length(row) + block_rows - 1) / block_rows;
#pragma omp for schedule(dynamic)
                    for (std::int64_t block = 0; block < blocks; ++block)
                        multiply_block(row, block * block_rows, column, k, packed_left);
                }
        Unit::end();
    }

  private:
    /// All threads together; returns when all have finished.
    void pack_right(std::int64_t column, std::int64_t columns, std::int64_t k, std::int64_t depth) const {
        const std::int64_t panel_bytes = round_up(depth, tile_depth) * tile_width * sizeof(bf16);
        const std::int64_t squares = (columns + square - 1) / square;
#pragma omp for schedule(static)
        for (std::int64_t i = 0; i < squares; ++i) {
            const std::int64_t begin = i * square;
            const std::int64_t width = columns - begin < square ? columns - begin : square;
            pack<Operand::right>(right_.at(column + begin, k), width, depth,
                                 packed_right_ + 2 * i * panel_bytes);
        }
    }

    /// Where the tiles of a block of rows are, in TileProduct's terms.
    struct LeftPanels {
        const std::byte* data;
        std::int64_t pitch, row, step;
    };

    /// Whole tiles of a matrix that is stored by rows can be loaded in place; all others are packed.
    LeftPanels left_panels(const Piece& piece, std::int64_t rows, std::int64_t depth,
                           std::byte* packed) const {
        if (Unit::loads_strided_tiles && !piece.depth_is_row && rows % tile_width == 0 &&
            depth % tile_depth == 0) {
            const auto row = piece.stride * static_cast<std::int64_t>(sizeof(bf16));
            return {reinterpret_cast<const std::byte*>(piece.data), tile_width * row, row,
                    tile_depth * sizeof(bf16)};
        }
        pack<Operand::left>(piece, rows, depth, packed);
        return {packed, round_up(depth, tile_depth) / tile_depth * tile_bytes, 64, tile_bytes};
    }

    /// Rows from `group` + `block`, for one piece of the columns and of the depth.
    void multiply_block(std::int64_t group, std::int64_t block, std::int64_t column, std::int64_t k,
                        std::byte* packed_left) const {
        const std::int64_t rest = blocking_.rows.length(group) - block;
        const std::int64_t rows = rest < blocking_.block_rows ? rest : blocking_.block_rows;
        const std::int64_t columns = blocking_.columns.length(column), depth = blocking_.depth.length(k);
        const std::int64_t steps = (depth + tile_depth - 1) / tile_depth, panel_bytes = steps * tile_bytes;
        const LeftPanels left = left_panels(left_.at(group + block, k), rows, depth, packed_left);

        const bool first = k == 0, last = k + blocking_.depth.size >= blocking_.depth.total;
        for (std::int64_t j = 0; j < columns; j += square) {
            const std::int64_t width = columns - j < square ? columns - j : square;
            alignas(64) float bias[square];
            read_bias(column + j, width, bias);
            for (std::int64_t i = 0; i < rows; i += square) {
                const std::int64_t height = rows - i < square ? rows - i : square;
                alignas(64) float own_sums[square * square];
                float* sums = first && last
                                  ? own_sums
                                  : kept_sums_ + ((block + i) / square * (blocking_.columns.size / square) +
                                                  j / square) *
                                                     square * square;
                multiply<Unit>({.left = left.data + i / tile_width * left.pitch,
                                .left_pitch = left.pitch,
                                .right = packed_right_ + j / tile_width * panel_bytes,
                                .right_pitch = panel_bytes,
                                .steps = steps,
                                .sums = sums,
                                .sums_pitch = 2 * tile_floats,
                                .add = !first,
                                .left_row = left.row,
                                .left_step = left.step},
                               tiles_in(height), tiles_in(width));
                if (last) finish(sums, group + block + i, height, column + j, width, bias);
            }
        }
    }

    void read_bias(std::int64_t column, std::int64_t count, float* bias) const {
        for (std::int64_t i = 0; i < square; ++i) bias[i] = 0;
        if (!gemm_.bias) return;
        with_type(gemm_.bias.dtype(), [&](auto t) {
            const auto* from = data_of<const decltype(t)>(gemm_.bias) + column;
            for_each_vector(count, [&](auto at) { store(bias, at, load(from, at)); });
        });
    }

    void finish(const float* sums, std::int64_t row, std::int64_t rows, std::int64_t column,
                std::int64_t columns, const float* bias) const {
        with_type(gemm_.c.dtype(), [&](auto t) {
            const std::int64_t stride = gemm_.c.stride(0);
            finish_square(sums, rows, columns, bias, gemm_.accumulate,
                          data_of<decltype(t)>(gemm_.c) + row * stride + column, stride);
        });
    }

    const Gemm& gemm_;
    Blocking blocking_;
    Piece left_, right_;
    std::byte* packed_right_;
    float* kept_sums_;  ///< between pieces of the depth: [row square][column square][2][2][16][16]
    const Scratch& scratch_;
};

template <class Unit>
void run_product(const Gemm& gemm, const CacheSizes& sizes, const Scratch& scratch) {
    const Product<Unit> product(gemm, sizes, scratch);
    // One block of rows keeps one thread busy: the others would only wait at the barriers.
    const bool several = gemm.c.size(0) > square;
#pragma omp parallel if (several)
    product.run();
}

}  // namespace

std::size_t thread_bytes(TileUnit unit) {
    const CacheSizes sizes = sizes_for(unit);
    return static_cast<std::size_t>(sizes.block_rows * sizes.depth) * sizeof(bf16);
}

std::size_t shared_bytes(const Gemm& gemm, TileUnit unit) {
    const Blocking blocking(gemm, sizes_for(unit));
    return round_up(blocking.right_bytes(), 64) + blocking.sum_bytes();
}

void multiply(const Gemm& gemm, TileUnit unit, const Scratch& scratch) {
    if (unit == TileUnit::amx)
        run_product<AmxUnit>(gemm, for_amx, scratch);
    else
        run_product<VectorUnit>(gemm, for_vectors, scratch);
}

}  // namespace drover::cpu::tiles
