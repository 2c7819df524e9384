#include "core/random_kernels.h"

#include <immintrin.h>

#include <bit>
#include <numbers>

#include "core/philox.h"

// Each kernel is a template on how to fuse a multiply and an add, forced inline into one function per
// instruction set. The fused operations are exactly where PyTorch's bits require them, as comparison with it
// has shown. No product here feeds a plain addition inexactly, so a compiler that contracts products and sums
// on its own changes nothing.

#define DROVER_INLINE [[gnu::always_inline]] inline
#define DROVER_AVX2 [[gnu::target("avx2,fma")]]
#define DROVER_AVX512 [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]]

namespace drover::random_kernels {
namespace {

struct HardwareFma {
    DROVER_INLINE static float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
};

struct SoftwareFma {
    /// a·b is exact in double, so that only the sum rounds before the conversion to float rounds again. That
    /// fails only when the sum was inexact and landed midway between two floats; then a step towards the
    /// exact sum breaks the tie.
    DROVER_INLINE static float fma(float a, float b, float c) {
        const double product = static_cast<double>(a) * static_cast<double>(b);
        const double addend = c;
        const double sum = product + addend;
        const auto bits = std::bit_cast<std::uint64_t>(sum);
        if ((bits & 0x1FFFFFFFu) != 0x10000000u) [[likely]]
            return static_cast<float>(sum);
        const double addend_part = sum - product;
        const double error = (product - (sum - addend_part)) + (addend - addend_part);
        if (error == 0.0) return static_cast<float>(sum);
        const bool away_from_zero = (error > 0.0) == (sum > 0.0);
        return static_cast<float>(std::bit_cast<double>(away_from_zero ? bits + 1 : bits - 1));
    }
};

DROVER_INLINE float unit_uniform(std::uint32_t draw) {
    return static_cast<float>(static_cast<std::int32_t>(draw & 0xFFFFFFu)) * 0x1p-24f;
}

/// ln x for x in [2^-24, 1], by the polynomial of the Cephes library, which PyTorch uses too.
template <class Fma>
DROVER_INLINE float log_of_unit(float x) {
    // x = 2^exponent · (1 + f) with 1 + f in [√½, √2).
    const auto bits = std::bit_cast<std::int32_t>(x);
    const std::int32_t exponent = (bits - 0x3F3504F3) >> 23;
    const float e = static_cast<float>(exponent);
    const float f = std::bit_cast<float>(bits - exponent * (1 << 23)) - 1.0f;
    const float square = f * f;
    float y = 7.0376836292e-2f;
    y = Fma::fma(y, f, -1.1514610310e-1f);
    y = Fma::fma(y, f, 1.1676998740e-1f);
    y = Fma::fma(y, f, -1.2420140846e-1f);
    y = Fma::fma(y, f, 1.4249322787e-1f);
    y = Fma::fma(y, f, -1.6668057665e-1f);
    y = Fma::fma(y, f, 2.0000714765e-1f);
    y = Fma::fma(y, f, -2.4999993993e-1f);
    y = Fma::fma(y, f, 3.3333331174e-1f);
    y = y * f;
    // ln 2 in two parts, the larger one short enough for an exact product.
    y = Fma::fma(y, square, e * -2.12194440e-4f);
    y = Fma::fma(square, -0.5f, y);
    return Fma::fma(e, 0.693359375f, f + y);
}

struct SineCosine {
    float sine, cosine;
};

/// For angles in [0, 2π], by Cephes' polynomials on [-π/4, π/4].
template <class Fma>
DROVER_INLINE SineCosine sine_and_cosine(float angle) {
    const auto eighth = static_cast<std::int32_t>(angle * 1.27323954473516f);
    const std::int32_t even = (eighth + 1) & ~1;  // 2 × the nearest multiple of π/2
    const float multiple = static_cast<float>(even);
    // π/4 in three parts.
    float x = Fma::fma(multiple, -0.78515625f, angle);
    x = Fma::fma(multiple, -2.4187564849853515625e-4f, x);
    x = Fma::fma(multiple, -3.77489497744594108e-8f, x);
    const float square = x * x;

    float cosine = Fma::fma(2.443315711809948e-5f, square, -1.388731625493765e-3f);
    cosine = Fma::fma(cosine, square, 4.166664568298827e-2f);
    cosine = Fma::fma(cosine * square, square, square * -0.5f) + 1.0f;

    float sine = Fma::fma(-1.9515295891e-4f, square, 8.3321608736e-3f);
    sine = Fma::fma(sine, square, -1.6666654611e-1f);
    sine = Fma::fma(sine * square, x, x);

    // Bit operations, because the vectoriser turns them into a blend on every instruction set.
    const auto sine_bits = std::bit_cast<std::uint32_t>(sine);
    const auto cosine_bits = std::bit_cast<std::uint32_t>(cosine);
    const auto quarter = static_cast<std::uint32_t>(even >> 1);
    const std::uint32_t exchange = (sine_bits ^ cosine_bits) & (0u - (quarter & 1u));
    const std::uint32_t sine_sign = (quarter << 30) & 0x80000000u;
    const std::uint32_t cosine_sign = ((quarter + 1u) << 30) & 0x80000000u;
    return {std::bit_cast<float>(sine_bits ^ exchange ^ sine_sign),
            std::bit_cast<float>(cosine_bits ^ exchange ^ cosine_sign)};
}

DROVER_INLINE float angle_of(std::uint32_t draw) {
    return static_cast<float>(2.0 * std::numbers::pi) * unit_uniform(draw);
}

template <class Fma>
DROVER_INLINE float radius_squared_of(std::uint32_t draw) {
    return -2.0f * log_of_unit<Fma>(1.0f - unit_uniform(draw));
}

constexpr std::size_t pairs_per_tile = tile_size / 2;

// std::sqrt may set errno, which keeps it out of vectorised loops; the instruction rounds correctly at every
// width.
void square_roots_sse2(float* values /*[pairs_per_tile]*/) {
    for (std::size_t i = 0; i < pairs_per_tile; i += 4) {
        _mm_storeu_ps(values + i, _mm_sqrt_ps(_mm_loadu_ps(values + i)));
    }
}

DROVER_AVX2 void square_roots_avx2(float* values /*[pairs_per_tile]*/) {
    for (std::size_t i = 0; i < pairs_per_tile; i += 8) {
        _mm256_storeu_ps(values + i, _mm256_sqrt_ps(_mm256_loadu_ps(values + i)));
    }
}

template <class Fma>
DROVER_INLINE void normal_tile(const DrawTile& draws, float mean, float standard_deviation, FloatTile& out,
                               void (*square_roots)(float*)) {
    constexpr std::size_t half = block_size / 2;
    alignas(64) std::uint32_t first[pairs_per_tile];
    alignas(64) std::uint32_t second[pairs_per_tile];
    alignas(64) float radius[pairs_per_tile];
    alignas(64) float cosines[pairs_per_tile];
    alignas(64) float sines[pairs_per_tile];
    for (std::size_t block = 0; block < tile_size / block_size; ++block) {
        for (std::size_t j = 0; j < half; ++j) first[block * half + j] = draws[block * block_size + j];
        for (std::size_t j = 0; j < half; ++j)
            second[block * half + j] = draws[block * block_size + half + j];
    }
    for (std::size_t i = 0; i < pairs_per_tile; ++i) radius[i] = radius_squared_of<Fma>(first[i]);
    square_roots(radius);
    for (std::size_t i = 0; i < pairs_per_tile; ++i) {
        const SineCosine direction = sine_and_cosine<Fma>(angle_of(second[i]));
        cosines[i] = Fma::fma(radius[i] * direction.cosine, standard_deviation, mean);
        sines[i] = Fma::fma(radius[i] * direction.sine, standard_deviation, mean);
    }
    for (std::size_t block = 0; block < tile_size / block_size; ++block) {
        for (std::size_t j = 0; j < half; ++j) out[block * block_size + j] = cosines[block * half + j];
        for (std::size_t j = 0; j < half; ++j) out[block * block_size + half + j] = sines[block * half + j];
    }
}

template <class Fma>
DROVER_INLINE void uniform_tile(const DrawTile& draws, float low, float high, FloatTile& out) {
    const float width = high - low;
    for (std::size_t i = 0; i < tile_size; ++i) {
        const float value = Fma::fma(unit_uniform(draws[i]), width, low);
        out[i] = value == high ? low : value;
    }
}

DROVER_INLINE void next_words(std::uint32_t* words) {
    for (std::size_t k = 0; k < mt_words; ++k) {
        const std::uint32_t joined = (words[k] & 0x80000000u) | (words[k + 1] & 0x7FFFFFFFu);
        words[k + mt_words] = words[k + 397] ^ (joined >> 1) ^ ((0u - (joined & 1u)) & 0x9908B0DFu);
    }
}

DROVER_INLINE void temper(const std::uint32_t* __restrict words, std::uint32_t* __restrict outputs) {
    for (std::size_t k = 0; k < mt_words; ++k) {
        std::uint32_t y = words[k];
        y ^= y >> 11;
        y ^= (y << 7) & 0x9D2C5680u;
        y ^= (y << 15) & 0xEFC60000u;
        outputs[k] = y ^ (y >> 18);
    }
}

DROVER_INLINE void add_eight_windows(const std::uint32_t* __restrict words,
                                     const std::uint32_t* __restrict starts, std::uint32_t* __restrict sum) {
    const std::uint32_t *a = words + starts[0], *b = words + starts[1], *c = words + starts[2],
                        *d = words + starts[3];
    const std::uint32_t *e = words + starts[4], *f = words + starts[5], *g = words + starts[6],
                        *h = words + starts[7];
    for (std::size_t k = 0; k < mt_words; ++k) {
        sum[k] ^= ((a[k] ^ b[k]) ^ (c[k] ^ d[k])) ^ ((e[k] ^ f[k]) ^ (g[k] ^ h[k]));
    }
}

DROVER_INLINE void philox_tile(std::uint64_t key, std::uint64_t stream, std::uint64_t first_block,
                               DrawTile& out) {
    // The tile is aligned, so the low word of the counter cannot carry inside it.
    const auto low = static_cast<std::uint32_t>(first_block);
    const auto high = static_cast<std::uint32_t>(first_block >> 32);
    const auto stream_low = static_cast<std::uint32_t>(stream);
    const auto stream_high = static_cast<std::uint32_t>(stream >> 32);
    for (std::uint32_t i = 0; i < tile_size / 4; ++i) {
        const PhiloxWords words = philox4x32({low + i, high, stream_low, stream_high}, key);
        out[4 * i + 0] = words.w0;
        out[4 * i + 1] = words.w1;
        out[4 * i + 2] = words.w2;
        out[4 * i + 3] = words.w3;
    }
}

#define DROVER_DEFINE_KERNELS(ATTRIBUTES, SUFFIX, FMA, SQUARE_ROOTS)                                         \
    ATTRIBUTES void next_words_##SUFFIX(std::uint32_t* words) {                                              \
        next_words(words);                                                                                   \
    }                                                                                                        \
    ATTRIBUTES void temper_##SUFFIX(const std::uint32_t* words, std::uint32_t* outputs) {                    \
        temper(words, outputs);                                                                              \
    }                                                                                                        \
    ATTRIBUTES void add_eight_windows_##SUFFIX(const std::uint32_t* words, const std::uint32_t* starts,      \
                                               std::uint32_t* sum) {                                         \
        add_eight_windows(words, starts, sum);                                                               \
    }                                                                                                        \
    ATTRIBUTES void uniform_tile_##SUFFIX(const DrawTile& draws, float low, float high, FloatTile& out) {    \
        uniform_tile<FMA>(draws, low, high, out);                                                            \
    }                                                                                                        \
    ATTRIBUTES void normal_tile_##SUFFIX(const DrawTile& draws, float mean, float standard_deviation,        \
                                         FloatTile& out) {                                                   \
        normal_tile<FMA>(draws, mean, standard_deviation, out, SQUARE_ROOTS);                                \
    }                                                                                                        \
    ATTRIBUTES void philox_tile_##SUFFIX(std::uint64_t key, std::uint64_t stream, std::uint64_t first_block, \
                                         DrawTile& out) {                                                    \
        philox_tile(key, stream, first_block, out);                                                          \
    }                                                                                                        \
    constexpr Kernels SUFFIX##_kernels = {next_words_##SUFFIX,        temper_##SUFFIX,                       \
                                          add_eight_windows_##SUFFIX, uniform_tile_##SUFFIX,                 \
                                          normal_tile_##SUFFIX,       philox_tile_##SUFFIX};

DROVER_DEFINE_KERNELS(, portable, SoftwareFma, square_roots_sse2)
DROVER_DEFINE_KERNELS(DROVER_AVX2, avx2, HardwareFma, square_roots_avx2)
DROVER_DEFINE_KERNELS(DROVER_AVX512, avx512, HardwareFma, square_roots_avx2)

constexpr std::array all_levels = {Level::portable, Level::avx2, Level::avx512};

}  // namespace

std::span<const Level> supported_levels() {
    const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    const bool has_avx512 = has_avx2 && __builtin_cpu_supports("avx512f") &&
                            __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                            __builtin_cpu_supports("avx512vl");
    return std::span(all_levels).first(has_avx512 ? 3 : has_avx2 ? 2 : 1);
}

const Kernels& kernels(Level level) {
    switch (level) {
        case Level::avx512:
            return avx512_kernels;
        case Level::avx2:
            return avx2_kernels;
        case Level::portable:
            break;
    }
    return portable_kernels;
}

const Kernels& kernels() {
    static const Kernels& fastest = kernels(supported_levels().back());
    return fastest;
}

std::pair<float, float> normal_pair(std::uint32_t first_draw, std::uint32_t second_draw) {
    const float radius = __builtin_sqrtf(radius_squared_of<SoftwareFma>(first_draw));
    const SineCosine direction = sine_and_cosine<SoftwareFma>(angle_of(second_draw));
    return {SoftwareFma::fma(radius * direction.cosine, 1.0f, 0.0f),
            SoftwareFma::fma(radius * direction.sine, 1.0f, 0.0f)};
}

}  // namespace drover::random_kernels
