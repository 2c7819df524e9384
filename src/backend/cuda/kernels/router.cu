#include "backend/cuda/kernels/device_code.cuh"

namespace drover::cuda {
namespace {

/// One warp per token; lane l has the experts l, l + 32, …
constexpr int router_threads = 256;
/// Tokens whose sums for the balance loss one block makes.
constexpr int router_chunk = 128;
constexpr unsigned all_lanes = 0xFFFFFFFFu;

struct Choice {
    float probability;
    int expert;  ///< −1: none
};

/// The likelier one; the lower expert on ties.
__device__ Choice better(Choice a, Choice b) {
    if (a.expert < 0) return b;
    if (b.expert < 0) return a;
    if (a.probability == b.probability) return a.expert < b.expert ? a : b;
    return b.probability > a.probability ? b : a;
}

/// The likeliest expert after `previous` in the order of choices. Comparisons with NaN are false; the next
/// expert is then taken, so that the index is always that of an expert.
__device__ Choice next_choice(const float* probabilities, int experts, Choice previous) {
    Choice best{0.f, -1};
    for (int e = threadIdx.x % 32; e < experts; e += 32) {
        const float p = probabilities[e];
        const bool allowed = previous.expert < 0 || p < previous.probability ||
                             (p == previous.probability && e > previous.expert);
        if (allowed) best = better(best, {p, e});
    }
    for (int offset = 16; offset > 0; offset /= 2)
        best = better(best, {__shfl_xor_sync(all_lanes, best.probability, offset),
                             __shfl_xor_sync(all_lanes, best.expert, offset)});
    best.expert = __shfl_sync(all_lanes, best.expert, 0);
    if (best.expert < 0) best.expert = (previous.expert + 1) % experts;
    return {probabilities[best.expert], best.expert};
}

/// choice_of[N,chosen], optional: the token's choices in order.
__global__ void route(const float* logits, float* probabilities, std::int32_t* expert_of, float* weights,
                      std::int32_t* choice_of, std::int64_t tokens, int experts, int slots, int chosen) {
    const std::int64_t n = (static_cast<std::int64_t>(blockIdx.x) * router_threads + threadIdx.x) / 32;
    if (n >= tokens) return;
    const int lane = threadIdx.x % 32;
    logits += n * experts;
    probabilities += n * experts;
    expert_of += n * slots;
    weights += n * slots;

    float largest = -__builtin_huge_valf(), sum = 0.f;
    for (int e = lane; e < experts; e += 32) largest = fmaxf(largest, logits[e]);
    largest = warp_max(largest);
    for (int e = lane; e < experts; e += 32) sum += expf(logits[e] - largest);
    sum = warp_sum(sum);
    for (int e = lane; e < experts; e += 32) probabilities[e] = expf(logits[e] - largest) / sum;
    const bool dense = slots == experts && chosen != experts;
    if (dense)
        for (int e = lane; e < experts; e += 32) {
            expert_of[e] = e;
            weights[e] = 0.f;
        }
    __syncwarp();

    float chosen_sum = 0.f;
    Choice choice{0.f, -1};
    for (int j = 0; j < chosen; ++j) {
        choice = next_choice(probabilities, experts, choice);
        chosen_sum += choice.probability;
        if (lane == 0) {
            const int slot = dense ? choice.expert : j;
            expert_of[slot] = choice.expert;
            weights[slot] = choice.probability;
            if (choice_of != nullptr) choice_of[n * chosen + j] = choice.expert;
        }
    }
    __syncwarp();
    for (int slot = lane; slot < slots; slot += 32) weights[slot] /= chosen_sum;
}

/// Block b's tokens: sums[b][0] the sums of their probabilities, sums[b][1 + j] how often an expert was their
/// j-th choice.
__global__ void sums_of_chunk(const float* probabilities, const std::int32_t* choice_of,
                              const std::int32_t* counts, double* sums, std::int64_t tokens, int experts,
                              int chosen) {
    const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * router_chunk;
    const std::int64_t end = min(first + router_chunk, static_cast<std::int64_t>(tokens));
    const int width = (1 + chosen) * experts;
    for (int i = threadIdx.x; i < width; i += router_threads) {
        const int j = i / experts - 1, e = i % experts;
        double sum = 0;
        for (std::int64_t n = first; n < end; ++n) {
            if (counts != nullptr && counts[n] == 0) continue;
            if (j < 0)
                sum += probabilities[n * experts + e];
            else
                sum += choice_of[n * chosen + j] == e ? 1 : 0;
        }
        sums[static_cast<std::int64_t>(blockIdx.x) * width + i] = sum;
    }
}

__global__ void add_sums(const double* sums, int chunks, double* probability_sums, double* choices,
                         int experts, int width) {
    const int i = blockIdx.x * router_threads + threadIdx.x;
    if (i >= width) return;
    double sum = 0;
    for (int b = 0; b < chunks; ++b) sum += sums[static_cast<std::int64_t>(b) * width + i];
    if (i < experts)
        probability_sums[i] += sum;
    else
        choices[i - experts] += sum;
}

template <class T>
__global__ void route_backward(const float* probabilities, const std::int32_t* expert_of,
                               const float* weights, const float* dweights, const std::int32_t* counts,
                               const float* balance, T* dlogits, std::int64_t dlogits_stride,
                               std::int64_t tokens, int experts, int slots) {
    const std::int64_t n = (static_cast<std::int64_t>(blockIdx.x) * router_threads + threadIdx.x) / 32;
    if (n >= tokens) return;
    const int lane = threadIdx.x % 32;
    probabilities += n * experts;
    expert_of += n * slots;
    weights += n * slots;
    dweights += n * slots;
    dlogits += n * dlogits_stride;
    const bool balanced = balance != nullptr && (counts == nullptr || counts[n] != 0);

    // weight = p / Σ p over the chosen experts, which are those with a positive weight.
    float chosen_sum = 0.f, mean = 0.f;
    for (int s = 0; s < slots; ++s)
        if (weights[s] > 0) {
            chosen_sum += probabilities[expert_of[s]];
            mean += dweights[s] * weights[s];
        }
    const auto dprobability = [&](int e) {
        float d = balanced ? balance[e] : 0.f;
        for (int s = 0; s < slots; ++s)
            if (expert_of[s] == e && weights[s] > 0) d += (dweights[s] - mean) / chosen_sum;
        return d;
    };
    float inner = 0.f;
    for (int e = lane; e < experts; e += 32) inner += dprobability(e) * probabilities[e];
    inner = warp_sum(inner);
    for (int e = lane; e < experts; e += 32)
        dlogits[e] = from_float<T>(probabilities[e] * (dprobability(e) - inner));
}

/// One block.
__global__ void loss_of_balance(const double* choices, const double* probability_sums, double* loss,
                                float* balance, int slots, int experts, double coefficient, double scale) {
    double tokens = 0;
    for (int e = threadIdx.x; e < experts; e += router_threads)
        tokens += choices[e];  // all have a first choice
    tokens = block_sum(tokens);
    tokens = tokens > 0 ? tokens : 1;
    double sum = 0;
    for (int e = threadIdx.x; e < experts; e += router_threads) {
        double fraction = 0;
        for (int j = 0; j < slots; ++j) fraction += choices[j * experts + e] / tokens;
        const double factor = coefficient * experts * fraction / tokens;
        sum += factor * probability_sums[e];
        balance[e] = static_cast<float>(scale * factor);
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) *loss = sum;
}

unsigned blocks_for_warps(std::int64_t warps) {
    return static_cast<unsigned>(ceil_div(warps, router_threads / 32));
}

}  // namespace

void router(const Launch& launch, const Router& op) {
    const std::int64_t tokens = op.logits.size(0);
    const int experts = static_cast<int>(op.logits.size(1)), slots = static_cast<int>(op.experts.size(1));
    const int chosen = static_cast<int>(op.chosen), width = (1 + chosen) * experts;
    if (tokens == 0) return;
    const auto chunks = static_cast<int>(ceil_div(tokens, router_chunk));
    double* sums = nullptr;
    std::int32_t* choice_of = nullptr;
    if (op.choices) {
        const std::size_t sum_count = static_cast<std::size_t>(chunks) * width;
        sums = static_cast<double*>(launch.scratch.take(
            sum_count * sizeof(double) + static_cast<std::size_t>(tokens) * chosen * sizeof(std::int32_t)));
        choice_of = reinterpret_cast<std::int32_t*>(sums + sum_count);
    }
    route<<<blocks_for_warps(tokens), router_threads, 0, launch.stream>>>(
        elements<float>(op.logits), elements<float>(op.probabilities), elements<std::int32_t>(op.experts),
        elements<float>(op.weights), choice_of, tokens, experts, slots, chosen);
    if (op.choices) {
        sums_of_chunk<<<static_cast<unsigned>(chunks), router_threads, 0, launch.stream>>>(
            elements<float>(op.probabilities), choice_of, elements<std::int32_t>(op.counts), sums, tokens,
            experts, chosen);
        add_sums<<<static_cast<unsigned>(ceil_div(width, router_threads)), router_threads, 0,
                   launch.stream>>>(sums, chunks, elements<double>(op.probability_sums),
                                    elements<double>(op.choices), experts, width);
    }
    check_launch("router");
}

void router_backward(const Launch& launch, const RouterBackward& op) {
    const std::int64_t tokens = op.probabilities.size(0);
    if (tokens == 0) return;
    with_floating(op.dlogits.dtype(), [&]<class T>() {
        route_backward<T><<<blocks_for_warps(tokens), router_threads, 0, launch.stream>>>(
            elements<float>(op.probabilities), elements<std::int32_t>(op.experts),
            elements<float>(op.weights), elements<float>(op.dweights), elements<std::int32_t>(op.counts),
            elements<float>(op.balance), elements<T>(op.dlogits), op.dlogits.stride(0), tokens,
            static_cast<int>(op.probabilities.size(1)), static_cast<int>(op.experts.size(1)));
    });
    check_launch("router_backward");
}

void balance_loss(const Launch& launch, const BalanceLoss& op) {
    loss_of_balance<<<1, router_threads, 0, launch.stream>>>(
        elements<double>(op.choices), elements<double>(op.probability_sums), elements<double>(op.loss),
        elements<float>(op.balance), static_cast<int>(op.choices.size(0)),
        static_cast<int>(op.choices.size(1)), op.coefficient, op.scale);
    check_launch("balance_loss");
}

}  // namespace drover::cuda
