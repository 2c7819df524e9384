#include "backend/cuda/kernels/early_launch.cuh"
#include "backend/cuda/kernels/row_groups.cuh"

namespace drover::cuda {
namespace {

/// Groups of elements that a thread copies at once.
constexpr int copied_at_once = 4;
constexpr int groups_of_warp = 32 * copied_at_once, warps_of_block = 8;

template <class Y, class W>
__device__ void copy_group(Y* to, const Eight<W>& group) {
    if constexpr (std::is_same_v<W, Y>) {
        store_eight(to, group);
    } else {
        float values[8];
        to_floats(group, values);
        store_eight(to, to_eight<Y>(values));
    }
}
template <class Y, class W>
__device__ void copy_group(Y* to, W element) {
    *to = from_float<Y>(to_float(element));
}

/// A warp has a row, or one of the `parts` of a wide one.
template <class W, class Y, bool wide>
__global__ void __launch_bounds__(32 * warps_of_block)
    copy_rows(const std::int32_t* ids, const W* weight, Y* y, std::uint32_t items, std::uint32_t parts,
              std::uint32_t groups_of_row, std::int64_t vocabulary, std::int64_t weight_stride,
              std::int64_t y_stride, std::int64_t first_id) {
    const std::uint32_t item = blockIdx.x * warps_of_block + threadIdx.x / 32;
    wait_for_earlier_kernels();
    if (item >= items) return;
    const std::uint32_t token = item / parts;
    const std::uint32_t first = (item - token * parts) * groups_of_warp + threadIdx.x % 32;
    const std::int64_t row = ids[token] - first_id;
    const bool held = row >= 0 && row < vocabulary;
    const W* const from = weight + row * weight_stride;
    Group<W, wide> loaded[copied_at_once] = {};
#pragma unroll
    for (int i = 0; i < copied_at_once; ++i)
        if (held && first + 32 * i < groups_of_row)
            loaded[i] = load_group<W, wide>(from + (first + 32 * i) * group_size<wide>);
    Y* const to = y + token * y_stride;
#pragma unroll
    for (int i = 0; i < copied_at_once; ++i)
        if (first + 32 * i < groups_of_row) copy_group(to + (first + 32 * i) * group_size<wide>, loaded[i]);
}

}  // namespace

void embedding(const Launch& launch, const Embedding& op) {
    const std::int64_t tokens = op.ids.size(0), width = op.weight.size(1);
    if (tokens * width == 0) return;
    const bool wide = eights_fit(op.weight) && eights_fit(op.y);
    const std::int64_t groups_of_row = wide ? width / 8 : width;
    const std::int64_t parts = ceil_div(groups_of_row, groups_of_warp), items = tokens * parts;
    require(items < (std::int64_t{1} << 31) && groups_of_row < (std::int64_t{1} << 31),
            "embedding: more elements than the kernel counts");
    with_floating(op.weight.dtype(), [&]<class W>() {
        with_floating(op.y.dtype(), [&]<class Y>() {
            launch_early("embedding", launch, wide ? copy_rows<W, Y, true> : copy_rows<W, Y, false>,
                         static_cast<unsigned>(ceil_div(items, warps_of_block)), 32 * warps_of_block, 0,
                         elements<const std::int32_t>(op.ids), elements<const W>(op.weight),
                         elements<Y>(op.y), items, parts, groups_of_row, op.weight.size(0),
                         op.weight.stride(0), op.y.stride(0), op.first_id);
        });
    });
}

}  // namespace drover::cuda
