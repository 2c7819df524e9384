#include "core/counter_rng.h"

#include <algorithm>

#include "core/error.h"
#include "core/random_kernels.h"

namespace drover {
namespace {

using random_kernels::DrawTile;
using random_kernels::FloatTile;
using random_kernels::tile_size;

constexpr std::uint64_t words_per_block = 4;

}  // namespace

std::uint32_t CounterRng::bits(std::uint64_t leaf, std::uint64_t element) const {
    const PhiloxWords words = at(leaf, element / words_per_block);
    switch (element % words_per_block) {
        case 0:
            return words.w0;
        case 1:
            return words.w1;
        case 2:
            return words.w2;
        default:
            return words.w3;
    }
}

float CounterRng::uniform(std::uint64_t leaf, std::uint64_t element) const {
    return static_cast<float>(bits(leaf, element) & 0xFFFFFFu) * 0x1p-24f;
}

std::pair<float, float> CounterRng::normal_pair(std::uint64_t leaf, std::uint64_t first) const {
    constexpr std::uint64_t half = random_kernels::block_size / 2;
    require(first % random_kernels::block_size < half,
            "a pair of normals starts in the first half of its block");
    return random_kernels::normal_pair(bits(leaf, first), bits(leaf, first + half));
}

/// Tiles are aligned to multiples of their size, so that an element's value cannot depend on where a fill
/// begins.
template <class Element, class Transform>
void CounterRng::fill(std::uint64_t leaf, std::uint64_t begin, std::span<Element> out,
                      const Transform& transform) const {
    if (out.empty()) return;
    const std::uint64_t end = begin + out.size();
    const std::uint64_t stream = stream_of(leaf);
    const std::uint64_t first_tile = begin / tile_size;
    const std::uint64_t tile_limit = (end - 1) / tile_size + 1;
    constexpr std::uint64_t tiles_worth_threads = 32;
#pragma omp parallel for schedule(static) if (tile_limit - first_tile >= tiles_worth_threads)
    for (std::uint64_t tile = first_tile; tile < tile_limit; ++tile) {
        DrawTile draws;
        random_kernels::kernels().philox_tile(seed_, stream, tile * (tile_size / words_per_block), draws);
        const auto& values = transform(draws);
        const std::uint64_t tile_begin = tile * tile_size;
        const std::uint64_t copy_begin = std::max(begin, tile_begin);
        const std::uint64_t copy_end = std::min(end, tile_begin + tile_size);
        std::copy(values.begin() + static_cast<std::ptrdiff_t>(copy_begin - tile_begin),
                  values.begin() + static_cast<std::ptrdiff_t>(copy_end - tile_begin),
                  out.begin() + static_cast<std::ptrdiff_t>(copy_begin - begin));
    }
}

void CounterRng::fill_bits(std::uint64_t leaf, std::uint64_t begin, std::span<std::uint32_t> out) const {
    fill(leaf, begin, out, [](const DrawTile& draws) -> const DrawTile& { return draws; });
}

void CounterRng::fill_uniform(std::uint64_t leaf, std::uint64_t begin, std::span<float> out) const {
    fill(leaf, begin, out, [](const DrawTile& draws) {
        FloatTile values;
        random_kernels::kernels().uniform_tile(draws, 0.0f, 1.0f, values);
        return values;
    });
}

void CounterRng::fill_normal(std::uint64_t leaf, std::uint64_t begin, std::span<float> out, float mean,
                             float standard_deviation) const {
    fill(leaf, begin, out, [=](const DrawTile& draws) {
        FloatTile values;
        random_kernels::kernels().normal_tile(draws, mean, standard_deviation, values);
        return values;
    });
}

}  // namespace drover
