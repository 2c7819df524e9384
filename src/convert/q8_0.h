#pragma once

#include <cstddef>
#include <cstdint>

namespace drover {

/// llama.cpp's Q8_0: every 32 elements become a scale in half precision and 32 signed bytes. `count` is a
/// multiple of 32; writes count / 32 * 34 bytes. The bits are those of llama.cpp and of its Python package.
void quantize_q8_0(const float* from, std::int64_t count, std::byte* to);

}  // namespace drover
