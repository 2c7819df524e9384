#include "backend/cpu/tile_engine.h"

#include <omp.h>

#include "backend/cpu/tiles/attention.h"
#include "backend/cpu/tiles/gemm.h"

namespace drover::cpu {
namespace {

/// Attention in tiles keeps packed copies of a whole sequence; where these grow too large for one thread, the
/// kernels that repack blocks every time are used.
constexpr std::size_t most_attention_bytes = std::size_t{64} << 20;

}  // namespace

bool TileEngine::takes(const Gemm& gemm) const {
    return gemm.a.dtype() == DType::bf16 && gemm.c.numel() > 0 && gemm.a.size(gemm.transpose_a ? 0 : 1) > 0;
}

bool TileEngine::takes(const Attention& op) const {
    return op.q.dtype() == DType::bf16 && tiles::thread_bytes(op) <= most_attention_bytes;
}

bool TileEngine::takes(const AttentionBackward& op) const {
    return op.q.dtype() == DType::bf16 && tiles::thread_bytes(op) <= most_attention_bytes;
}

void TileEngine::run(const Gemm& gemm) {
    const std::size_t bytes = tiles::shared_bytes(gemm, unit_);
    if (bytes > shared_bytes_) {
        shared_ = allocate_host_memory(bytes);
        shared_bytes_ = bytes;
    }
    scratch_.reserve(omp_get_max_threads(), tiles::thread_bytes(unit_));
    tiles::multiply(gemm, unit_, {static_cast<std::byte*>(shared_.get()), scratch_.blocks()});
}

void TileEngine::run(const Attention& op) {
    scratch_.reserve(omp_get_max_threads(), tiles::thread_bytes(op));
    tiles::run(op, unit_, scratch_.blocks());
}

void TileEngine::run(const AttentionBackward& op) {
    scratch_.reserve(omp_get_max_threads(), tiles::thread_bytes(op));
    tiles::run(op, unit_, scratch_.blocks());
}

}  // namespace drover::cpu
