#include "backend/cuda/kernels/attention_gradient.cuh"
#include "backend/cuda/kernels/attention_gradient.h"
#include "backend/cuda/kernels/early_launch.cuh"
#include "backend/cuda/kernels/sequence_map.h"
#include "backend/cuda/kernels/shared_memory.cuh"
#include "backend/cuda/kernels/tensor_map.h"

namespace drover::cuda {
namespace {

using namespace attention_gradient;

constexpr int listing_threads = 1024;

/// Fills tiles[count], the tiles of all sequences in the order in which they are taken, `together` sequences
/// in turn, and clears the counter of tickets. Without `begin` every row of `row_length` tokens is a
/// sequence. first_number has room for sequences + 1. One block.
__global__ void __launch_bounds__(listing_threads)
    list_tiles(const std::int32_t* begin, const std::int32_t* length, int sequences, int together,
               int* first_number, SequenceTile* tiles, int count) {
    __shared__ int of_warp[listing_threads / 32];
    wait_for_earlier_kernels();
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int before = 0;
    for (int first = 0; first < sequences; first += listing_threads) {
        const int own = first + threadIdx.x;
        const int mine = own < sequences ? (length[own] + tile_keys - 1) / tile_keys : 0;
        const int of_this_warp = warp_sum_up_to_here(mine);
        if (lane == 31) of_warp[warp] = of_this_warp;
        __syncthreads();
        int up_to_here = before + of_this_warp;
        for (int i = 0; i < listing_threads / 32; ++i) {
            if (i < warp) up_to_here += of_warp[i];
            before += of_warp[i];
        }
        if (own < sequences) first_number[own] = up_to_here - mine;
        __syncthreads();
    }
    if (threadIdx.x == 0) first_number[sequences] = before;
    __syncthreads();
    for (int number = threadIdx.x; number < count; number += listing_threads) {
        if (number >= before) {
            tiles[number] = {};
            continue;
        }
        int sequence = 0;
        for (int end = sequences; end - sequence > 1;) {
            const int middle = (sequence + end) / 2;
            (first_number[middle] <= number ? sequence : end) = middle;
        }
        const int first = first_number[sequence];
        tiles[place_in_order(first_number, sequences, together, sequence, number - first)] = {
            .begin = begin[sequence], .length = length[sequence], .number = number, .first_number = first};
    }
    allow_next_kernel();
}

template <class T, int head>
__global__ void __launch_bounds__(preparing_threads)
    prepare_gradients(Problem problem, StatisticsInputs inputs) {
    wait_for_earlier_kernels();
    allow_next_kernel();
    prepare<T, head>(problem, inputs);
}

template <class T, int head>
__global__ void __launch_bounds__(threads, 1)
    attention_gradients(const __grid_constant__ Maps maps, const __grid_constant__ Problem problem) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    wait_for_earlier_kernels();
    compute_gradients<T, head>(maps, problem);
#endif
}

/// What an operation needs, in pieces of key/value heads.
struct Plan {
    std::int64_t sequences, tiles;
    int padded_head;         ///< columns of the kernel that computes it
    std::int64_t key_heads;  ///< of a piece; 0 if not even one fits
    std::int64_t blocks_of_tile, group;

    Plan(const AttentionBackward& op, std::int64_t most_bytes) : group(op.q.size(1) / op.k.size(1)) {
        const std::int64_t length = op.sequences.row_length;
        const bool given = static_cast<bool>(op.sequences.begin);
        sequences = given ? op.sequences.begin.size(0) : op.sequences.rows;
        tiles = given ? ceil_div(op.sequences.tokens(), tile_keys) + sequences
                      : sequences * ceil_div(length, tile_keys);
        padded_head = op.q.size(2) <= 64 ? 64 : 128;
        blocks_of_tile = tile_keys / step_queries();
        const std::int64_t of_head =
            tiles * blocks_of_tile * group * (step_queries() * (padded_head + 2) + 1) * 4;
        for (key_heads = std::min(op.k.size(1), most_bytes / std::max<std::int64_t>(of_head, 1));
             key_heads > 0 && op.k.size(1) % key_heads != 0;)
            --key_heads;
    }

    int step_queries() const {
        return padded_head == 64 ? TileSizes<64>::step_queries : TileSizes<128>::step_queries;
    }
    std::int64_t blocks() const { return tiles * blocks_of_tile * key_heads * group; }
};

Place place_of(const Tensor& tensor) {
    return {.start = tensor.raw(), .token_stride = tensor.stride(0), .head_stride = tensor.stride(1)};
}

/// Boxes of 64 columns of `tokens` tokens of a head.
CUtensorMap map_of(const Tensor& x, std::int64_t tokens) {
    const auto element = static_cast<std::int64_t>(size_of(x.dtype()));
    return make_tensor_map(x.dtype(), {.start = x.raw(),
                                       .sizes = {x.size(2), x.size(0), x.size(1)},
                                       .byte_strides = {x.stride(0) * element, x.stride(1) * element},
                                       .box = {64, tokens}});
}

template <class T, int head>
void launch_gradients(const Launch& launch, const AttentionBackward& op, const Plan& plan) {
    using Sizes = TileSizes<head>;
    ScratchParts parts;
    const bool given = static_cast<bool>(op.sequences.begin);
    const std::size_t first_number_at = parts.add(given ? (plan.sequences + 1) * sizeof(int) : 0),
                      tiles_at = parts.add(given ? plan.tiles * sizeof(SequenceTile) : 0),
                      tickets_at = parts.add(sizeof(int)), turns_at = parts.add(plan.blocks() * sizeof(int)),
                      statistics_at = parts.add(plan.blocks() * Sizes::statistics_of_step * sizeof(float)),
                      sums_at = parts.add(plan.blocks() * Sizes::sums_of_step * sizeof(float)),
                      map_at = parts.add(given ? op.sequences.tokens() * sizeof(SequenceOfToken) : 0);
    auto* const memory = static_cast<std::byte*>(launch.scratch.take(parts.bytes()));
    auto* const tiles = reinterpret_cast<SequenceTile*>(memory + tiles_at);

    const Maps maps{.q = map_of(op.q, Sizes::step_queries),
                    .k = map_of(op.k, tile_keys),
                    .v = map_of(op.v, tile_keys),
                    .dout = map_of(op.dout, Sizes::step_queries)};
    const StatisticsInputs inputs{.out = place_of(op.out),
                                  .dout = place_of(op.dout),
                                  .lse = elements<const float>(op.lse),
                                  .heads = static_cast<int>(op.q.size(1)),
                                  .row_length = static_cast<int>(op.sequences.row_length)};
    const auto sequences = static_cast<int>(plan.sequences);
    const int together = sequences_together(sequences, static_cast<int>(plan.key_heads));
    Problem problem{.tiles = {.tiles = given ? tiles : nullptr,
                              .count = static_cast<int>(plan.tiles),
                              .sequences = sequences,
                              .length = inputs.row_length,
                              .together = together},
                    .key_heads = static_cast<int>(plan.key_heads),
                    .group = static_cast<int>(plan.group),
                    .head_size = static_cast<int>(op.q.size(2)),
                    .window = op.window < op.sequences.row_length ? static_cast<int>(op.window) : 0,
                    .scale = op.scale,
                    .dq = place_of(op.dq),
                    .dk = place_of(op.dk),
                    .dv = place_of(op.dv),
                    .statistics = reinterpret_cast<float*>(memory + statistics_at),
                    .sums = reinterpret_cast<float*>(memory + sums_at),
                    .turns = reinterpret_cast<int*>(memory + turns_at),
                    .tickets = reinterpret_cast<int*>(memory + tickets_at)};
    const auto kernel = attention_gradients<T, head>;
    constexpr const char* name = "attention's gradient";
    reserve_shared_memory(kernel, dynamic_bytes<head>, name);
    if (given)
        launch_early(name, launch, list_tiles, 1, listing_threads, 0,
                     elements<const std::int32_t>(op.sequences.begin),
                     elements<const std::int32_t>(op.sequences.length), sequences, together,
                     reinterpret_cast<int*>(memory + first_number_at), tiles, static_cast<int>(plan.tiles));
    for (; problem.first_key_head < op.k.size(1); problem.first_key_head += problem.key_heads) {
        const dim3 grid(static_cast<unsigned>(plan.tiles),
                        static_cast<unsigned>(plan.key_heads * plan.group));
        launch_early(name, launch, prepare_gradients<T, head>, grid, preparing_threads, 0, problem, inputs);
        const std::int64_t tasks = plan.tiles * plan.key_heads;
        launch_early(name, launch, kernel,
                     static_cast<unsigned>(std::min<std::int64_t>(tasks, launch.gpu.multiprocessors)),
                     threads, dynamic_bytes<head>, maps, problem);
    }
    if (!given) return;
    auto* const map = reinterpret_cast<SequenceOfToken*>(memory + map_at);
    map_tokens(launch, op.sequences, map);
    for (const Tensor* gradient : {&op.dq, &op.dk, &op.dv}) zero_gaps(launch, *gradient, map);
}

}  // namespace

bool hopper_attention_backward_takes(const Launch& launch, const AttentionBackward& op,
                                     std::int64_t most_bytes) {
    const DType dtype = op.q.dtype();
    if (dtype != DType::bf16 && dtype != DType::f16) return false;
    if (op.q.numel() == 0 || op.q.size(2) % 8 != 0 || op.q.size(2) > 128) return false;
    for (const Tensor* x : {&op.q, &op.k, &op.v, &op.out, &op.dout, &op.dq, &op.dk, &op.dv})
        if (reinterpret_cast<std::uintptr_t>(x->raw()) % 16 != 0 || x->stride(0) % 8 != 0 ||
            x->stride(1) % 8 != 0)
            return false;
    const Plan plan(op, most_bytes);
    constexpr std::int64_t most_blocks = std::int64_t{1} << 30;
    return plan.key_heads > 0 && op.sequences.tokens() < most_blocks && plan.blocks() < most_blocks &&
           plan.key_heads * plan.group < 65536 && launch.gpu.code.hopper_products &&
           shared_memory_fits(launch, std::max(dynamic_bytes<64>, dynamic_bytes<128>));
}

void hopper_attention_backward(const Launch& launch, const AttentionBackward& op, std::int64_t most_bytes) {
    const Plan plan(op, most_bytes);
    const auto with_type = [&]<class T>() {
        plan.padded_head == 64 ? launch_gradients<T, 64>(launch, op, plan)
                               : launch_gradients<T, 128>(launch, op, plan);
    };
    if (op.q.dtype() == DType::bf16)
        with_type.template operator()<bfloat_t>();
    else
        with_type.template operator()<half_t>();
}

}  // namespace drover::cuda
