#include "backend/cpu/amx/gemm.h"

#include <omp.h>

#include "backend/cpu/amx/pack.h"
#include "backend/cpu/amx/tiles.h"

namespace drover::cpu::amx {
namespace {

constexpr std::int64_t round_up(std::int64_t count, std::int64_t unit) {
    return (count + unit - 1) / unit * unit;
}

/// c is made in squares of 2 × 2 tiles: four sums, two tiles of each operand.
constexpr std::int64_t square = 2 * tile_width;

/// The packed right operand of one piece, columns × depth, takes half of a core's second-level cache (2 MiB
/// on all processors with AMX), and a block of rows of the left one another eighth: tiles come from there.
constexpr std::int64_t most_columns = 512, most_depth = 1024, most_block_rows = 128;
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
    Cut rows, columns, depth;
    std::int64_t block_rows;

    Blocking(std::int64_t row_count, std::int64_t column_count, std::int64_t depth_count)
        : rows(row_count, most_rows, square),
          columns(column_count, most_columns, square),
          depth(depth_count, most_depth, tile_depth),
          // Small enough that there is a block for every thread.
          block_rows(row_count >= 1024  ? most_block_rows
                     : row_count >= 256 ? 64
                                        : square) {}

    bool depth_is_cut() const { return depth.size < depth.total; }
    std::size_t right_bytes() const {
        return static_cast<std::size_t>(columns.size * round_up(depth.size, tile_depth)) * sizeof(bf16);
    }
    std::size_t sum_bytes() const {
        return depth_is_cut() ? static_cast<std::size_t>(rows.size * columns.size) * sizeof(float) : 0;
    }
};

Blocking blocking_of(const Gemm& gemm) {
    return {gemm.c.size(0), gemm.c.size(1), gemm.a.size(gemm.transpose_a ? 0 : 1)};
}

/// sums[tile row][tile column][16][16] (+)= left panels · right panels over `steps` tiles of depth.
template <class Tiles, int tile_rows_used, int tile_columns_used>
void multiply_square(const std::byte* left, const std::byte* right, std::int64_t steps, float* sums,
                     bool add) {
    constexpr bool second_row = tile_rows_used == 2, second_column = tile_columns_used == 2;
    constexpr int tile_floats = tile_bytes / sizeof(float);
    if (add) {
        Tiles::template load<0>(sums);
        if constexpr (second_column) Tiles::template load<1>(sums + tile_floats);
        if constexpr (second_row) Tiles::template load<2>(sums + 2 * tile_floats);
        if constexpr (second_row && second_column) Tiles::template load<3>(sums + 3 * tile_floats);
    } else {
        Tiles::template zero<0>();
        Tiles::template zero<1>();
        Tiles::template zero<2>();
        Tiles::template zero<3>();
    }
    const std::int64_t panel = steps * tile_bytes;
    for (std::int64_t step = 0; step < steps; ++step) {
        const std::byte* left_tile = left + step * tile_bytes;
        const std::byte* right_tile = right + step * tile_bytes;
        Tiles::template load<6>(right_tile);
        Tiles::template load<4>(left_tile);
        Tiles::template multiply<0, 4, 6>();
        if constexpr (second_row) {
            Tiles::template load<5>(left_tile + panel);
            Tiles::template multiply<2, 5, 6>();
        }
        if constexpr (second_column) {
            Tiles::template load<7>(right_tile + panel);
            Tiles::template multiply<1, 4, 7>();
            if constexpr (second_row) Tiles::template multiply<3, 5, 7>();
        }
    }
    Tiles::template store<0>(sums);
    if constexpr (second_column) Tiles::template store<1>(sums + tile_floats);
    if constexpr (second_row) Tiles::template store<2>(sums + 2 * tile_floats);
    if constexpr (second_row && second_column) Tiles::template store<3>(sums + 3 * tile_floats);
}

template <class Tiles>
void multiply_square(const std::byte* left, const std::byte* right, std::int64_t steps, std::int64_t rows,
                     std::int64_t columns, float* sums, bool add) {
    const bool tall = rows > tile_width, wide = columns > tile_width;
    const auto run = tall ? (wide ? multiply_square<Tiles, 2, 2> : multiply_square<Tiles, 2, 1>)
                          : (wide ? multiply_square<Tiles, 1, 2> : multiply_square<Tiles, 1, 1>);
    run(left, right, steps, sums, add);
}

/// c = sums + bias (+ c) for rows × columns ≤ 32 × 32 elements.
template <class Out>
void finish_square(const float* sums, std::int64_t rows, std::int64_t columns, const float* bias,
                   bool accumulate, Out* c, std::int64_t stride) {
    for (std::int64_t row = 0; row < rows; ++row) {
        const float* row_sums = sums + row / tile_width * 512 + row % tile_width * tile_width;
        for_each_vector(columns, [&](auto at) {
            Floats result =
                load_vector(row_sums + at.begin / tile_width * 256) + load_vector(bias + at.begin);
            if (accumulate) result += load(c + row * stride, at);
            store(c + row * stride, at, result);
        });
    }
}

/// One product, for the threads of a parallel region that all call run().
template <class Tiles>
class Product {
  public:
    Product(const Gemm& gemm, const Scratch& scratch)
        : gemm_(gemm),
          blocking_(blocking_of(gemm)),
          left_{data_of<const bf16>(gemm.a), gemm.a.stride(0), gemm.transpose_a},
          right_{data_of<const bf16>(gemm.b), gemm.b.stride(0), !gemm.transpose_b},
          packed_right_(scratch.shared),
          kept_sums_(reinterpret_cast<float*>(scratch.shared + round_up(blocking_.right_bytes(), 64))),
          scratch_(scratch) {}

    void run() const {
        Tiles::configure();
        std::byte* packed_left = scratch_.of_thread[omp_get_thread_num()];
        const auto& [rows, columns, depth, block_rows] = blocking_;
        for (std::int64_t row = 0; row < rows.total; row += rows.size)
            for (std::int64_t column = 0; column < columns.total; column += columns.size)
                for (std::int64_t k = 0; k < depth.total; k += depth.size) {
                    pack_right(column, columns.length(column), k, depth.length(k));
                    const std::int64_t blocks = (rows.length(row) + block_rows - 1) / block_rows;
#pragma omp for schedule(dynamic)
                    for (std::int64_t block = 0; block < blocks; ++block)
                        multiply_block(row, block * block_rows, column, k, packed_left);
                }
        Tiles::release();
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

    /// Rows from `group` + `block`, for one piece of the columns and of the depth.
    void multiply_block(std::int64_t group, std::int64_t block, std::int64_t column, std::int64_t k,
                        std::byte* packed_left) const {
        const std::int64_t rest = blocking_.rows.length(group) - block;
        const std::int64_t rows = rest < blocking_.block_rows ? rest : blocking_.block_rows;
        const std::int64_t columns = blocking_.columns.length(column), depth = blocking_.depth.length(k);
        const std::int64_t steps = (depth + tile_depth - 1) / tile_depth, panel_bytes = steps * tile_bytes;
        pack<Operand::left>(left_.at(group + block, k), rows, depth, packed_left);

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
                multiply_square<Tiles>(packed_left + i / tile_width * panel_bytes,
                                       packed_right_ + j / tile_width * panel_bytes, steps, height, width,
                                       sums, !first);
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

template <class Tiles>
void run_product(const Gemm& gemm, const Scratch& scratch) {
    const Product<Tiles> product(gemm, scratch);
    // One block of rows keeps one thread busy: the others would only wait at the barriers.
    const bool several = gemm.c.size(0) > square;
#pragma omp parallel if (several)
    product.run();
}

}  // namespace

const std::size_t thread_bytes = most_block_rows * most_depth * sizeof(bf16);

std::size_t shared_bytes(const Gemm& gemm) {
    const Blocking blocking = blocking_of(gemm);
    return round_up(blocking.right_bytes(), 64) + blocking.sum_bytes();
}

void multiply(const Gemm& gemm, TileUnit unit, const Scratch& scratch) {
    if (unit == TileUnit::hardware)
        run_product<HardwareTiles>(gemm, scratch);
    else
        run_product<EmulatedTiles>(gemm, scratch);
}

}  // namespace drover::cpu::amx
