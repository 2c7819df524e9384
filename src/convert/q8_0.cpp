#include "convert/q8_0.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/dtype.h"
#include "io/gguf_header.h"

namespace drover {

void quantize_q8_0(const float* from, std::int64_t count, std::byte* to) {
    for (; count > 0; count -= q8_0_block, from += q8_0_block, to += q8_0_block_bytes) {
        float largest = 0;
        for (std::int64_t i = 0; i < q8_0_block; ++i) largest = std::max(largest, std::fabs(from[i]));
        const float scale = largest / 127.0f;
        const float inverse = scale == 0 ? 0.0f : 1.0f / scale;
        const std::uint16_t bits = f16(scale).bits;
        std::memcpy(to, &bits, sizeof(bits));
        for (std::int64_t i = 0; i < q8_0_block; ++i) {
            const float rounded = std::round(from[i] * inverse);  // NaN where the weights are not finite
            to[2 + i] = static_cast<std::byte>(std::isnan(rounded) ? 0 : static_cast<std::int8_t>(rounded));
        }
    }
}

}  // namespace drover
