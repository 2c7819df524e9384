#pragma once

#include "backend/cuda/kernels/device_code.cuh"
#include "core/philox.h"

namespace drover::cuda {

/// Positions of a part's elements in the whole leaf, and their random words, which are CounterRng's.
struct LeafNoise {
    std::uint64_t leaf;
    std::int64_t first;         ///< number of the part's first element in the whole leaf
    std::int64_t columns;       ///< of this part, or all of its elements when its rows are whole
    std::int64_t row_distance;  ///< from a row of this part to the next one

    LeafNoise() = default;
    LeafNoise(const LeafPlace& place, const Tensor& part)
        : leaf(place.leaf),
          first(place.row_begin * place.columns + place.column_begin),
          columns(part.rank() == 2 ? part.size(1) : 1),
          row_distance(place.columns) {
        // Whole rows are contiguous.
        if (columns == place.columns) columns = row_distance = part.numel();
    }

    __device__ std::uint64_t number(std::int64_t at) const {
        if (at < columns) return static_cast<std::uint64_t>(first + at);
        const std::int64_t row = at / columns;
        return static_cast<std::uint64_t>(first + row * row_distance + (at - row * columns));
    }
};

/// The random words of one leaf in one step.
class LeafWords {
  public:
    __device__ LeafWords(const LeafNoise& noise, std::uint64_t seed, float step)
        : noise_(noise), seed_(seed), stream_(philox_stream(noise.leaf, static_cast<std::uint64_t>(step))) {}

    __device__ void draw_eight(std::int64_t at, std::uint32_t (&words)[8]) const {
        const std::uint64_t number = noise_.number(at);
        if (number % 4 == 0 && noise_.number(at + 7) == number + 7) {
            const PhiloxWords low = block(number / 4), high = block(number / 4 + 1);
            words[0] = low.w0, words[1] = low.w1, words[2] = low.w2, words[3] = low.w3;
            words[4] = high.w0, words[5] = high.w1, words[6] = high.w2, words[7] = high.w3;
        } else {
#pragma unroll 1
            for (int i = 0; i < 8; ++i) {
                const std::uint32_t word = draw_one(at + i);
#pragma unroll
                for (int e = 0; e < 8; ++e)
                    if (e == i) words[e] = word;
            }
        }
    }

    __device__ std::uint32_t draw_one(std::int64_t at) const {
        const std::uint64_t number = noise_.number(at);
        const PhiloxWords words = block(number / 4);
        const auto which = static_cast<std::uint32_t>(number % 4);
        return which < 2 ? (which == 0 ? words.w0 : words.w1) : (which == 2 ? words.w2 : words.w3);
    }

  private:
    __device__ PhiloxWords block(std::uint64_t number) const {
        return philox4x32({static_cast<std::uint32_t>(number), static_cast<std::uint32_t>(number >> 32),
                           static_cast<std::uint32_t>(stream_), static_cast<std::uint32_t>(stream_ >> 32)},
                          seed_);
    }

    LeafNoise noise_;
    std::uint64_t seed_, stream_;
};

}  // namespace drover::cuda
