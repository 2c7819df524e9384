#include "backend/cpu/kernels.h"
#include "backend/cpu/kernels/parallel.h"
#include "backend/cpu/kernels/vector_math.h"

namespace drover::cpu::DROVER_ISA {
/// A counting sort; serial, since it touches only a few bytes per slot.
void sort_by_expert(const SortByExpert& op) {
    const std::int64_t slots = op.experts.numel(), experts = op.offsets.size(0) - 1;
    const std::int32_t* expert_of = data_of<std::int32_t>(op.experts);
    std::int32_t* offsets = data_of<std::int32_t>(op.offsets);
    std::int32_t* row_of_slot = data_of<std::int32_t>(op.row_of_slot);
    std::int32_t* slot_of_row = data_of<std::int32_t>(op.slot_of_row);
    for (std::int64_t e = 0; e <= experts; ++e) offsets[e] = 0;
    for (std::int64_t slot = 0; slot < slots; ++slot) ++offsets[expert_of[slot] + 1];
    for (std::int64_t e = 0; e < experts; ++e) offsets[e + 1] += offsets[e];
    // offsets[e] serves as expert e's next row, and ends as its first row one place further on.
    for (std::int64_t slot = 0; slot < slots; ++slot) {
        const std::int32_t row = offsets[expert_of[slot]]++;
        row_of_slot[slot] = row;
        slot_of_row[row] = static_cast<std::int32_t>(slot);
    }
    for (std::int64_t e = experts; e > 0; --e) offsets[e] = offsets[e - 1];
    offsets[0] = 0;
}

void tokens_to_rows(const TokensToRows& op) {
    const std::int64_t rows = op.slot_of_row.size(0), width = op.x.size(1);
    const std::int64_t slots = op.x.size(0) > 0 ? rows / op.x.size(0) : 1;
    const std::int32_t* slot_of_row = data_of<std::int32_t>(op.slot_of_row);
    with_type(op.x.dtype(), [&](auto t) {
        using T = decltype(t);
        for_each_row(rows, width, [&](std::int64_t row) {
            const T* from = data_of<T>(op.x) + slot_of_row[row] / slots * op.x.stride(0);
            T* to = data_of<T>(op.rows) + row * op.rows.stride(0);
            __builtin_memcpy(to, from, static_cast<std::size_t>(width) * sizeof(T));
        });
    });
}

void rows_to_tokens(const RowsToTokens& op) {
    const std::int64_t tokens = op.y.size(0), width = op.y.size(1);
    const std::int64_t slots = tokens > 0 ? op.rows.size(0) / tokens : 1;
    const std::int32_t* row_of_slot = data_of<std::int32_t>(op.row_of_slot);
    const float* weights = op.weights ? data_of<float>(op.weights) : nullptr;
    with_type(op.y.dtype(), [&](auto t) {
        using T = decltype(t);
        const T* rows = data_of<T>(op.rows);
        for_each_row(tokens, width * slots, [&](std::int64_t n) {
            T* y = data_of<T>(op.y) + n * op.y.stride(0);
            for_each_vector(width, [&](auto at) {
                Floats sum = {};
                for (std::int64_t slot = n * slots; slot < (n + 1) * slots; ++slot) {
                    const Floats row = load(rows + row_of_slot[slot] * op.rows.stride(0), at);
                    sum += weights ? weights[slot] * row : row;
                }
                store(y, at, sum);
            });
        });
    });
}

void weight_rows(const WeightRows& op) {
    const std::int64_t rows = op.activated.size(0), width = op.activated.size(1), hidden = op.dy.size(1);
    const std::int32_t* slot_of_row = data_of<std::int32_t>(op.slot_of_row);
    const float* weights = data_of<float>(op.weights);
    float* dweights = data_of<float>(op.dweights);
    with_type(op.activated.dtype(), [&](auto t) {
        using T = decltype(t);
        for_each_row(rows, width + hidden, [&](std::int64_t row) {
            const T* activated = data_of<T>(op.activated) + row * op.activated.stride(0);
            T* dactivated = data_of<T>(op.dactivated) + row * op.dactivated.stride(0);
            T* dy = data_of<T>(op.dy) + row * op.dy.stride(0);
            const float weight = weights[slot_of_row[row]];
            Floats inner = {};
            for_each_vector(width, [&](auto at) {
                const Floats d = load(dactivated, at);
                inner += d * load(activated, at);
                store(dactivated, at, weight * d);
            });
            dweights[slot_of_row[row]] = sum_of_lanes(inner);
            for_each_vector(hidden, [&](auto at) { store(dy, at, weight * load(dy, at)); });
        });
    });
}

}  // namespace drover::cpu::DROVER_ISA
