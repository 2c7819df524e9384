#include <algorithm>

#include "backend/cuda/kernels/eight_elements.cuh"
#include "backend/cuda/kernels/shared_memory.cuh"
#include "backend/cuda/kernels/token_order.cuh"

namespace drover::cuda {
namespace {

/// Threads for rows of `width` elements, eight to a thread.
int threads_for(std::int64_t width) {
    return static_cast<int>(std::clamp<std::int64_t>(ceil_div(width, 8 * 32) * 32, 32, 256));
}

// Tokens are sorted by id, which keeps their order within an id, and the sorted tokens are cut into pieces of
// equal length. A block sums the rows of one piece. If all of an id's tokens are in the piece, that is its
// row's gradient. An id whose tokens continue into the next piece, or from the previous one, leaves a partial
// sum; the pieces' partial sums are then added in order. So an id shared by all tokens is as fast as any
// other.

constexpr int tokens_per_piece = 32;
/// Rows that a thread has in flight at once.
constexpr int tokens_unrolled = 8;

/// Shared by the kernels that sum.
template <class Y, class W>
struct SortedSums {
    const std::uint32_t* keys;  ///< sorted
    const std::int32_t* order;  ///< the token of each
    std::int64_t tokens, vocabulary, width;
    const Y* dy;
    std::int64_t dy_stride;
    W* dweight;
    std::int64_t dweight_stride;
    bool accumulate;
    float* partials;  ///< [pieces][2][width]: of the id continued from the previous piece, and of the one
                      ///< continued into the next

    __device__ float* partial(std::int64_t piece, int which) const {
        return partials + (2 * piece + which) * width;
    }
};

template <int columns, class T>
__device__ void load_columns(const T* from, Eight<T>& loaded) {
    if constexpr (columns == 8)
        loaded = load_eight_streaming(from);
    else
        *reinterpret_cast<T*>(&loaded) = *from;
}

/// A thread's columns of dweight's row: its old value if it is to be added to, plus `sums`.
template <int columns, class W>
__device__ void write_row(W* to, float (&sums)[8], bool accumulate) {
    if constexpr (columns == 8) {
        float before[8] = {};
        if (accumulate) to_floats(load_eight(to), before);
#pragma unroll
        for (int e = 0; e < 8; ++e) before[e] += sums[e];
        store_eight(to, to_eight<W>(before));
    } else {
        *to = from_float<W>(accumulate ? to_float(*to) + sums[0] : sums[0]);
    }
}

/// Block (piece, columns): `columns` of 8 or 1 per thread.
template <class Y, class W, int columns>
__global__ void sum_pieces(SortedSums<Y, W> s) {
    // Keys of the piece, with a neighbour on each side.
    __shared__ std::uint32_t keys[tokens_per_piece + 2];
    __shared__ std::int32_t order[tokens_per_piece];
    const std::int64_t begin = std::int64_t{blockIdx.x} * tokens_per_piece;
    const int count =
        static_cast<int>(s.tokens - begin < tokens_per_piece ? s.tokens - begin : tokens_per_piece);
    wait_for_earlier_kernels();
    constexpr std::uint32_t none = 0xFFFFFFFFu;
    for (int i = threadIdx.x; i < tokens_per_piece + 2; i += blockDim.x) {
        const std::int64_t at = begin + i - 1;
        keys[i] = at >= 0 && at < s.tokens ? s.keys[at] : none;
        if (i > 0 && i <= count) order[i - 1] = s.order[at];
    }
    __syncthreads();
    const std::int64_t column = (std::int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * columns;
    if (column >= s.width) return;
    float sums[8] = {};
    for (int first = 0; first < count; first += tokens_unrolled) {
        Eight<Y> loaded[tokens_unrolled];
#pragma unroll
        for (int i = 0; i < tokens_unrolled; ++i)
            if (first + i < count && keys[first + i + 1] < s.vocabulary)
                load_columns<columns>(s.dy + order[first + i] * s.dy_stride + column, loaded[i]);
#pragma unroll
        for (int i = 0; i < tokens_unrolled; ++i) {
            const std::uint32_t key = first + i < count ? keys[first + i + 1] : none;
            if (key >= s.vocabulary) break;
            float values[8];
            to_floats(loaded[i], values);
#pragma unroll
            for (int e = 0; e < columns; ++e) sums[e] += values[e];
            const bool goes_on = key == keys[first + i + 2];
            if (goes_on && first + i + 1 < count) continue;
            const bool from_before = key == keys[0];
            if (!goes_on && !from_before)
                write_row<columns>(s.dweight + key * s.dweight_stride + column, sums, s.accumulate);
            else
                for (int e = 0; e < columns; ++e)
                    s.partial(blockIdx.x, from_before ? 0 : 1)[column + e] = sums[e];
#pragma unroll
            for (int e = 0; e < columns; ++e) sums[e] = 0;
        }
    }
}

/// The first piece after `piece` that does not begin with `key`.
__device__ std::int64_t end_of_pieces(const std::uint32_t* keys, std::int64_t tokens, std::int64_t piece,
                                      std::uint32_t key) {
    std::int64_t low = piece, high = (tokens + tokens_per_piece - 1) / tokens_per_piece;
    while (high - low > 1) {
        const std::int64_t middle = (low + high) / 2;
        (keys[middle * tokens_per_piece] == key ? low : high) = middle;
    }
    return high;
}

/// Block (piece, columns): finishes the id that begins in the piece and continues into the next.
template <class Y, class W, int columns>
__global__ void finish_pieces(SortedSums<Y, W> s) {
    const std::int64_t end = std::int64_t{blockIdx.x + 1} * tokens_per_piece;
    wait_for_earlier_kernels();
    if (end >= s.tokens) return;
    const std::uint32_t key = s.keys[end];
    if (key >= s.vocabulary || s.keys[end - 1] != key) return;
    const std::int64_t begin = end - tokens_per_piece;
    if (begin > 0 && s.keys[begin - 1] == key) return;
    const std::int64_t column = (std::int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * columns;
    if (column >= s.width) return;
    float sums[8] = {};
    for (int e = 0; e < columns; ++e) sums[e] = s.partial(blockIdx.x, 1)[column + e];
    const std::int64_t pieces_end = end_of_pieces(s.keys, s.tokens, blockIdx.x + 1, key);
#pragma unroll 8
    for (std::int64_t piece = blockIdx.x + 1; piece < pieces_end; ++piece)
        for (int e = 0; e < columns; ++e) sums[e] += s.partial(piece, 0)[column + e];
    write_row<columns>(s.dweight + key * s.dweight_stride + column, sums, s.accumulate);
}

/// Sorts the tokens if one block is to do it, and clears the rows of `dweight`, if given, that no token has.
void sort_and_clear_rows(const Launch& launch, const TokenKeys& order, bool sorts, const Tensor& dweight,
                         const std::uint8_t* occurs) {
    ClearedRows cleared{.data = elements<unsigned char>(dweight), .occurs = occurs};
    const bool wide = eights_fit(dweight);
    if (dweight) {
        const auto element = static_cast<std::int64_t>(size_of(dweight.dtype()));
        cleared.rows = dweight.size(0);
        cleared.units = dweight.size(1) * element / (wide ? 16 : 2);
        cleared.stride = dweight.stride(0) * element;
    }
    const std::int64_t blocks = (sorts ? 1 : 0) + ceil_div(cleared.rows, ordering_threads / 32);
    if (blocks == 0) return;
    constexpr int bytes = sizeof(BlockSort::TempStorage);
    static_assert(bytes <= least_shared_memory);
    reserve_shared_memory(sort_and_clear, bytes, "embedding_backward");
    launch_early("embedding_backward", launch, sort_and_clear, static_cast<unsigned>(blocks),
                 ordering_threads, bytes, order, cleared, wide, sorts ? 1u : 0u);
}

}  // namespace

void embedding_backward(const Launch& launch, const EmbeddingBackward& op) {
    const std::int64_t tokens = op.ids.size(0), vocabulary = op.dweight.size(0), width = op.dweight.size(1);
    if (vocabulary * width == 0) return;
    if (tokens == 0) {
        if (!op.accumulate) fill(launch, {.x = op.dweight});
        return;
    }

    TokenKeys order{.tokens = tokens, .key_bits = 1};
    while ((vocabulary >> order.key_bits) > 0) ++order.key_bits;
    require(order.key_bits < 32, "embedding_backward: a vocabulary beyond 31 bits");
    const bool by_block = order.fit_a_block();
    const auto sort_by_many = [&](void* storage, std::size_t& bytes, const std::int32_t* numbers) {
        check(cub::DeviceRadixSort::SortPairs(storage, bytes, order.keys, order.sorted_keys, numbers,
                                              order.sorted_tokens, tokens, 0, order.key_bits, launch.stream),
              "embedding_backward");
    };
    std::size_t sort_bytes = 0;
    if (!by_block) sort_by_many(nullptr, sort_bytes, nullptr);
    const std::int64_t pieces = ceil_div(tokens, tokens_per_piece);
    ScratchParts parts;
    const std::size_t table = static_cast<std::size_t>(tokens) * 4;
    const std::size_t keys = parts.add(table), numbers = parts.add(table), sorted_keys = parts.add(table),
                      sorted_tokens = parts.add(table), sorting = parts.add(sort_bytes),
                      occurs = parts.add(vocabulary),
                      partials = parts.add(static_cast<std::size_t>(pieces * 2 * width) * sizeof(float));
    auto* scratch = static_cast<char*>(launch.scratch.take(parts.bytes()));
    auto* unsorted_keys = reinterpret_cast<std::uint32_t*>(scratch + keys);
    auto* unsorted_tokens = reinterpret_cast<std::int32_t*>(scratch + numbers);
    order.keys = unsorted_keys;
    order.sorted_keys = reinterpret_cast<std::uint32_t*>(scratch + sorted_keys);
    order.sorted_tokens = reinterpret_cast<std::int32_t*>(scratch + sorted_tokens);

    auto* occurring = reinterpret_cast<std::uint8_t*>(scratch + occurs);
    check(cudaMemsetAsync(occurring, 0, static_cast<std::size_t>(vocabulary), launch.stream),
          "embedding_backward");
    make_keys<<<ceil_div(tokens, 256), 256, 0, launch.stream>>>(elements<const std::int32_t>(op.ids), tokens,
                                                                op.first_id, op.padding_id, vocabulary,
                                                                unsorted_keys, unsorted_tokens, occurring);
    check_launch("embedding_backward");
    if (!by_block) sort_by_many(scratch + sorting, sort_bytes, unsorted_tokens);
    sort_and_clear_rows(launch, order, by_block, op.accumulate ? Tensor() : op.dweight, occurring);

    const bool wide = eights_fit(op.dy) && eights_fit(op.dweight);
    const int threads = wide ? threads_for(width) : 256;
    const std::int64_t tiles = ceil_div(width, threads * (wide ? 8 : 1));
    require(tiles <= 65535, "embedding_backward: rows that are too wide");
    const dim3 grid(pieces, tiles);
    with_floating(op.dy.dtype(), [&]<class Y>() {
        with_floating(op.dweight.dtype(), [&]<class W>() {
            const SortedSums<Y, W> sums{order.sorted_keys,
                                        order.sorted_tokens,
                                        tokens,
                                        vocabulary,
                                        width,
                                        elements<Y>(op.dy),
                                        op.dy.stride(0),
                                        elements<W>(op.dweight),
                                        op.dweight.stride(0),
                                        op.accumulate,
                                        reinterpret_cast<float*>(scratch + partials)};
            const auto sum = wide ? sum_pieces<Y, W, 8> : sum_pieces<Y, W, 1>;
            const auto finish = wide ? finish_pieces<Y, W, 8> : finish_pieces<Y, W, 1>;
            launch_early("embedding_backward", launch, sum, grid, threads, 0, sums);
            launch_early("embedding_backward", launch, finish, grid, threads, 0, sums);
        });
    });
}

}  // namespace drover::cuda
