#include "backend/cpu/kernels.h"
#include "backend/cpu/kernels/parallel.h"
#include "backend/cpu/kernels/vector_math.h"

namespace drover::cpu::DROVER_ISA {
namespace {

template <class W, class Y>
void copy_row(const W* from, Y* to, std::int64_t width) {
    for_each_vector(width, [&](auto at) { store(to, at, from ? load(from, at) : splat(0)); });
}

/// Columns that one task sums at a time; they stay in fp32 on its stack.
constexpr std::int64_t block_columns = 256;

/// One block of columns of dweight's row: (its old value) + the sum of the dy rows in the chain that begins
/// at `token`.
template <class Y, class W>
void sum_chain(const Y* dy, std::int64_t dy_stride, std::int32_t token, const std::int32_t* next, W* dweight,
               std::int64_t width, bool accumulate) {
    alignas(64) float sums[block_columns];
    for_each_vector(width, [&](auto at) { store(sums, at, accumulate ? load(dweight, at) : splat(0)); });
    for (; token >= 0; token = next[token]) {
        const Y* row = dy + token * dy_stride;
        for_each_vector(width, [&](auto at) { store(sums, at, load(sums, at) + load(row, at)); });
    }
    for_each_vector(width, [&](auto at) { store(dweight, at, load(sums, at)); });
}

}  // namespace

void embedding(const Embedding& op) {
    const std::int64_t width = op.weight.size(1), vocabulary = op.weight.size(0);
    const auto* ids = static_cast<const std::int32_t*>(op.ids.raw());
    with_type(op.weight.dtype(), [&](auto w) {
        with_type(op.y.dtype(), [&](auto y) {
            const auto* weight = static_cast<const decltype(w)*>(op.weight.raw());
            auto* out = static_cast<decltype(y)*>(op.y.raw());
            for_each_row(op.ids.size(0), width, [&](std::int64_t token) {
                const std::int64_t id = ids[token] - op.first_id;
                const bool held = id >= 0 && id < vocabulary;
                copy_row(held ? weight + id * op.weight.stride(0) : nullptr, out + token * op.y.stride(0),
                         width);
            });
        });
    });
}

void embedding_backward(const GroupedEmbeddingBackward& grouped) {
    const EmbeddingBackward& op = grouped.operation;
    const std::int64_t vocabulary = op.dweight.size(0), width = op.dweight.size(1);
    const std::int64_t blocks = (width + block_columns - 1) / block_columns;
    with_type(op.dy.dtype(), [&](auto y) {
        with_type(op.dweight.dtype(), [&](auto w) {
            const auto* dy = static_cast<const decltype(y)*>(op.dy.raw());
            auto* dweight = static_cast<decltype(w)*>(op.dweight.raw());
            const std::int64_t dy_stride = op.dy.stride(0), dweight_stride = op.dweight.stride(0);
            // Some tokens are far more frequent than others, so tasks are handed out as threads become free.
            constexpr std::int64_t rows_per_task = elements_per_task / block_columns;
            const std::int64_t row_tasks = (vocabulary + rows_per_task - 1) / rows_per_task;
#pragma omp parallel for collapse(2) schedule(dynamic) if (row_tasks * blocks > 1)
            for (std::int64_t task = 0; task < row_tasks; ++task) {
                for (std::int64_t block = 0; block < blocks; ++block) {
                    const std::int64_t begin = block * block_columns;
                    const std::int64_t count = width - begin < block_columns ? width - begin : block_columns;
                    const std::int64_t last = (task + 1) * rows_per_task;
                    for (std::int64_t id = task * rows_per_task; id < last && id < vocabulary; ++id) {
                        const std::int32_t first = grouped.first[id];
                        if (first < 0 && op.accumulate) continue;
                        sum_chain(dy + begin, dy_stride, first, grouped.next,
                                  dweight + id * dweight_stride + begin, count, op.accumulate);
                    }
                }
            }
        });
    });
}

}  // namespace drover::cpu::DROVER_ISA
