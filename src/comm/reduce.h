#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "comm/collective_call.h"

namespace drover {

/// to[i] = the reduction of sources[0][i], sources[1][i], … in this order. bf16 and f16 are added in fp32 and
/// rounded once; integers wrap around. `to` may be one of the sources.
void reduce_in_order(Reduction reduction, DType dtype, std::span<const std::byte* const> sources,
                     std::byte* to, std::int64_t count);

}  // namespace drover
