#include "backend/cuda/gemm_choice.h"

#include <initializer_list>
#include <optional>

namespace drover::cuda {
namespace {

/// Tiles of the library, whose names there count columns of the result first.
enum Tile : std::uint32_t {
    tile_128x128 = CUBLASLT_MATMUL_TILE_128x128,
    tile_144x128 = CUBLASLT_MATMUL_TILE_144x128,
    tile_256x128 = CUBLASLT_MATMUL_TILE_256x128,
    tile_128x256 = CUBLASLT_MATMUL_TILE_128x256,
    tile_128x160 = CUBLASLT_MATMUL_TILE_128x160,
    tile_176x128 = CUBLASLT_MATMUL_TILE_176x128,
    tile_192x192 = CUBLASLT_MATMUL_TILE_192x192,
    tile_320x128 = CUBLASLT_MATMUL_TILE_320x128,
};

std::uint32_t tile_of(const cublasLtMatmulHeuristicResult_t& candidate) {
    std::uint32_t tile = 0;
    std::size_t written = 0;
    cublasLtMatmulAlgoConfigGetAttribute(&candidate.algo, CUBLASLT_ALGO_CONFIG_TILE_ID, &tile, sizeof(tile),
                                         &written);
    return tile;
}

bool sums_in_one_piece(const cublasLtMatmulHeuristicResult_t& candidate) {
    std::int32_t pieces = 1;
    std::size_t written = 0;
    cublasLtMatmulAlgoConfigGetAttribute(&candidate.algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &pieces,
                                         sizeof(pieces), &written);
    return pieces <= 1;
}

/// Tiles to prefer to the library's guess, the best first; empty when the guess is good.
std::initializer_list<Tile> better_than(std::uint32_t guess, const ProductShape& shape) {
    static constexpr std::initializer_list<Tile> none = {};
    static constexpr std::initializer_list<Tile> forward = {tile_176x128, tile_256x128, tile_128x160},
                                                 data_gradient = {tile_128x160, tile_128x256, tile_256x128},
                                                 weight_gradient = {tile_256x128, tile_128x256},
                                                 short_forward = {tile_176x128, tile_144x128, tile_256x128},
                                                 wide_short_sums = {tile_128x160},
                                                 narrow_short_sums = {tile_128x128};
    constexpr std::int64_t short_sum = 1024;
    const bool makes_weights = shape.transpose_a;
    if (guess == tile_192x192 || guess == tile_320x128) {
        if (makes_weights) return weight_gradient;
        if (!shape.transpose_b) return data_gradient;
        return shape.k <= short_sum ? short_forward : forward;
    }
    if (makes_weights || guess != tile_256x128) return none;
    // Where a tile's sums are soon done, smaller tiles hide the writing of results better.
    constexpr std::int64_t many_columns = 2048, few_columns = 1024;
    if (shape.k <= short_sum && shape.n >= (shape.transpose_b ? 2 * many_columns : many_columns))
        return wide_short_sums;
    return shape.k <= 2 * short_sum && shape.n <= few_columns ? narrow_short_sums : none;
}

}  // namespace

std::size_t chosen_candidate(std::span<const cublasLtMatmulHeuristicResult_t> candidates,
                             const ProductShape& shape) {
    if (candidates.empty()) return 0;
    for (const Tile wanted : better_than(tile_of(candidates[0]), shape))
        for (std::size_t i = 0; i < candidates.size(); ++i)
            if (tile_of(candidates[i]) == wanted && sums_in_one_piece(candidates[i])) return i;
    return 0;
}

}  // namespace drover::cuda
