#include "backend/cpu/kernels/attention_parts.h"
#include "backend/cpu/kernels/parallel.h"

namespace drover::cpu::DROVER_ISA {
namespace {

/// Keys whose scores are held at once.
constexpr std::int64_t key_block = 128;

/// The rows of one key/value head of one sequence's cache.
template <class T>
struct CacheRows {
    T* data;
    std::int64_t stride;

    CacheRows(const Tensor& cache, std::int64_t sequence, std::int64_t head)
        : data(static_cast<T*>(cache.raw()) + sequence * cache.stride(0) + head * cache.stride(2)),
          stride(cache.stride(1)) {}
    T* row(std::int64_t position) const { return data + position * stride; }
};

/// New keys or values → the cache.
template <class T>
void keep(const CachedAttention& op, const Tensor& from, const Tensor& cache) {
    const auto* sequence_of = data_of<const std::int32_t>(op.sequence_of);
    const auto* positions = data_of<const std::int32_t>(op.positions);
    for_each_row(from.size(0), from.size(1) * from.size(2), [&](std::int64_t token) {
        for (std::int64_t head = 0; head < from.size(1); ++head)
            __builtin_memcpy(CacheRows<T>(cache, sequence_of[token], head).row(positions[token]),
                             HeadRows<T>(from, head).row(token),
                             static_cast<std::size_t>(from.size(2)) * sizeof(T));
    });
}

/// One head of one token, with a running softmax over blocks of keys.
template <class T>
void attend(const CachedAttention& op, std::int64_t token, std::int64_t head) {
    alignas(64) float query[CachedAttention::largest_head];
    alignas(64) float sum_of_values[CachedAttention::largest_head];
    alignas(64) float scores[key_block];
    const std::int64_t kv_head = head / (op.q.size(1) / op.k.size(1));
    const std::int64_t head_size = op.q.size(2);
    const std::int64_t sequence = data_of<const std::int32_t>(op.sequence_of)[token];
    const std::int64_t position = data_of<const std::int32_t>(op.positions)[token];
    const std::int64_t first = op.window > 0 ? larger(0, position - op.window + 1) : 0;
    const CacheRows<const T> keys(op.key_cache, sequence, kv_head), values(op.value_cache, sequence, kv_head);
    const T* q = HeadRows<const T>(op.q, head).row(token);
    for_each_vector(head_size, [&](auto at) {
        store(query, at, load(q, at) * op.scale);
        store(sum_of_values, at, Floats{});
    });

    float largest = -__builtin_inff(), sum = 0;
    for (std::int64_t begin = first; begin <= position; begin += key_block) {
        const std::int64_t count = smaller(key_block, position + 1 - begin);
        float new_largest = largest;
        for (std::int64_t i = 0; i < count; ++i) {
            const T* key = keys.row(begin + i);
            Floats product{};
            for_each_vector(head_size, [&](auto at) {
                product += load(static_cast<const float*>(query), at) * load(key, at);
            });
            scores[i] = sum_of_lanes(product);
            new_largest = scores[i] > new_largest ? scores[i] : new_largest;
        }
        const float factor = exponential(splat(largest - new_largest))[0];
        sum *= factor;
        largest = new_largest;
        for_each_vector(head_size, [&](auto at) {
            store(sum_of_values, at, load(static_cast<const float*>(sum_of_values), at) * factor);
        });
        for_each_vector(count, [&](auto at) {
            store(scores, at, exponential(load(static_cast<const float*>(scores), at) - largest));
        });
        for (std::int64_t i = 0; i < count; ++i) {
            const T* value = values.row(begin + i);
            const float weight = scores[i];
            sum += weight;
            for_each_vector(head_size, [&](auto at) {
                store(sum_of_values, at,
                      load(static_cast<const float*>(sum_of_values), at) + weight * load(value, at));
            });
        }
    }
    T* out = HeadRows<T>(op.out, head).row(token);
    const float inverse = 1.f / sum;
    for_each_vector(head_size, [&](auto at) {
        store(out, at, load(static_cast<const float*>(sum_of_values), at) * inverse);
    });
}

}  // namespace

void cached_attention(const CachedAttention& op) {
    with_type(op.q.dtype(), [&](auto t) {
        using T = decltype(t);
        keep<T>(op, op.k, op.key_cache);
        keep<T>(op, op.v, op.value_cache);
        const std::int64_t heads = op.q.size(1), tasks = op.q.size(0) * heads;
#pragma omp parallel for schedule(dynamic)
        for (std::int64_t task = 0; task < tasks; ++task) attend<T>(op, task / heads, task % heads);
    });
}

}  // namespace drover::cpu::DROVER_ISA
