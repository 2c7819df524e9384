#pragma once

#include <cstdint>
#include <string_view>

#include "fuzz/accepts.h"
#include "io/safetensors.h"

namespace drover::test {

inline bool accepts_safetensors(std::string_view bytes) {
    return accepts([&] {
        const SafetensorsHeader header = SafetensorsHeader::parse(bytes, bytes.size(), "input");
        std::uint64_t covered = 0;
        for (const SafetensorsEntry& entry : header.entries) {
            require(entry.begin == covered && entry.end >= entry.begin, "a gap or an overlap was accepted");
            covered = entry.end;
            // Strides are products of the trailing sizes; Tensor computes them without checks.
            std::int64_t stride = 1;
            for (auto size = entry.shape.rbegin(); size != entry.shape.rend(); ++size)
                require(*size >= 0 && !__builtin_mul_overflow(stride, *size, &stride), "a stride overflows");
        }
        require(header.data_begin + covered == bytes.size(), "the tensors do not fill the file");
    });
}

}  // namespace drover::test
