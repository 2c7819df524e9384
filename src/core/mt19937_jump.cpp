#include "core/mt19937_jump.h"

#include <algorithm>
#include <bit>
#include <vector>

#include "core/random_kernels.h"

namespace drover::mt19937_jump {
namespace {

constexpr std::size_t polynomial_words = Polynomial{}.size();
constexpr std::size_t term_count = 135;

/// The characteristic polynomial in closed form (Matsumoto and Nishimura, "Mersenne Twister", 1998, appendix
/// A), with n = 624, m = 397, w = 32, r = 31 and Q = x^227 + 1, so that x^n + x^m = x^397·Q and x^(n-1) +
/// x^(m-1) = x^396·Q:
///   x^397·Q·(x^396·Q)^31 + Σ_{i<31} a_i · x^397·Q·(x^396·Q)^(30-i) + a_31,   a_i = bit i of the twist
///   matrix.
/// Over GF(2), Q^k is the sum of x^(227·j) over all j whose bits are a subset of k's.
constexpr std::array<std::uint16_t, term_count> make_exponents() {
    constexpr std::uint32_t twist = 0x9908B0DFu;
    std::array<bool, degree + 1> coefficients{};
    coefficients[0] = (twist >> 31) != 0;
    for (std::uint32_t power = 0; power <= 31; ++power) {
        const bool present = power == 31 || ((twist >> (30 - power)) & 1u) != 0;
        if (!present) continue;
        for (std::uint32_t subset = 0; subset <= power + 1; ++subset) {
            if ((subset & ~(power + 1)) != 0) continue;
            bool& coefficient = coefficients[397 + 396 * power + 227 * subset];
            coefficient = !coefficient;
        }
    }
    std::array<std::uint16_t, term_count> exponents{};
    std::size_t count = 0;
    for (std::size_t i = 0; i <= degree; ++i) {
        if (coefficients[i]) exponents.at(count++) = static_cast<std::uint16_t>(i);
    }
    return exponents;
}

constexpr auto exponents = make_exponents();
static_assert(exponents.back() == degree && exponents.front() == 0);

// Reduction folds this many words at once. Their results land below them, because the gap below the leading
// term is wide enough.
constexpr std::size_t fold_words = 9;
static_assert(degree - exponents[term_count - 2] >= 64 * fold_words);

/// A folded word run, shifted, is a word longer; the rest rounds the loop up to a multiple of the vector
/// length.
constexpr std::size_t fold_span = 12;

/// Room for a square, and for the padding of folds.
using Square = std::array<std::uint64_t, 2 * polynomial_words + fold_span>;

/// Adds run·x^shift to `target`; run[0] and the words past run[fold_words] are zero.
void add_shifted(std::uint64_t* __restrict target, const std::uint64_t* __restrict run /*[1 + fold_span]*/,
                 unsigned shift) {
    for (std::size_t i = 0; i < fold_span; ++i) {
        target[i] ^= (run[i + 1] << shift) | ((run[i] >> 1) >> (63 - shift));
    }
}

void reduce(Square& value) {
    constexpr std::span lower_terms(exponents.data(), term_count - 1);
    constexpr std::size_t top_word = degree / 64;
    constexpr std::size_t top_bit = degree % 64;
    std::array<std::uint64_t, 1 + fold_span> run{};
    for (std::size_t end = 2 * polynomial_words; end > top_word + 1;) {
        const std::size_t begin = std::max(end - fold_words, top_word + 1);
        run.fill(0);
        std::copy(value.begin() + begin, value.begin() + end, run.begin() + 1);
        std::fill(value.begin() + begin, value.begin() + end, 0);
        for (const std::size_t exponent : lower_terms) {
            const std::size_t position = 64 * begin - degree + exponent;
            add_shifted(&value[position / 64], run.data(), static_cast<unsigned>(position % 64));
        }
        end = begin;
    }
    const std::uint64_t rest = value[top_word] >> top_bit;
    value[top_word] &= (std::uint64_t{1} << top_bit) - 1;
    for (const std::size_t exponent : lower_terms) {
        value[exponent / 64] ^= rest << (exponent % 64);
        value[exponent / 64 + 1] ^= (rest >> 1) >> (63 - exponent % 64);
    }
}

/// Puts a zero after each of 32 bits: the square of a polynomial over GF(2).
std::uint64_t spread(std::uint32_t bits) {
    std::uint64_t value = bits;
    value = (value | (value << 16)) & 0x0000FFFF0000FFFFu;
    value = (value | (value << 8)) & 0x00FF00FF00FF00FFu;
    value = (value | (value << 4)) & 0x0F0F0F0F0F0F0F0Fu;
    value = (value | (value << 2)) & 0x3333333333333333u;
    return (value | (value << 1)) & 0x5555555555555555u;
}

}  // namespace

std::span<const std::uint16_t> characteristic_exponents() {
    return exponents;
}

Polynomial power_of_x(std::uint64_t steps) {
    // Square and multiply by x, from the highest bit down. The leading bits up to a power below the degree
    // need no reduction.
    constexpr int free_bits = 14;
    static_assert((1u << free_bits) <= degree);
    const int length = std::bit_width(steps);
    int remaining = std::max(length - free_bits, 0);
    const std::uint64_t leading = steps >> remaining;
    Polynomial result{};
    result[leading / 64] = std::uint64_t{1} << (leading % 64);

    Square square;
    while (remaining > 0) {
        --remaining;
        square.fill(0);
        const unsigned odd = (steps >> remaining) & 1u;
        std::uint64_t carry = 0;
        for (std::size_t i = 0; i < polynomial_words; ++i) {
            const std::uint64_t low = spread(static_cast<std::uint32_t>(result[i]));
            const std::uint64_t high = spread(static_cast<std::uint32_t>(result[i] >> 32));
            square[2 * i] = (low << odd) | carry;
            square[2 * i + 1] = (high << odd) | ((low >> 63) & odd);
            carry = (high >> 63) & odd;
        }
        reduce(square);
        std::copy_n(square.begin(), polynomial_words, result.begin());
    }
    return result;
}

void advance(std::span<std::uint32_t, 624> words, const Polynomial& polynomial) {
    // Word k of the new window is the sum of words k + i of the sequence over the terms x^i. The window of
    // the first padding start lies past all of them and is zero.
    constexpr std::size_t window = random_kernels::mt_words;
    constexpr std::size_t generated = (degree + window - 1) / window * window;
    constexpr std::uint32_t zero_window = window + generated;
    const random_kernels::Kernels& kernels = random_kernels::kernels();

    std::vector<std::uint32_t> sequence(zero_window + window);
    std::copy(words.begin(), words.end(), sequence.begin());
    for (std::size_t begin = 0; begin < generated; begin += window)
        kernels.next_words(sequence.data() + begin);

    std::vector<std::uint32_t> starts;
    starts.reserve(degree + 8);
    for (std::size_t i = 0; i < polynomial_words; ++i) {
        for (std::uint64_t bits = polynomial[i]; bits != 0; bits &= bits - 1) {
            starts.push_back(
                static_cast<std::uint32_t>(64 * i + static_cast<unsigned>(std::countr_zero(bits))));
        }
    }
    while (starts.size() % 8 != 0) starts.push_back(zero_window);

    std::array<std::uint32_t, window> sum{};
    for (std::size_t i = 0; i < starts.size(); i += 8)
        kernels.add_eight_windows(sequence.data(), &starts[i], sum.data());
    std::copy(sum.begin(), sum.end(), words.begin());
}

}  // namespace drover::mt19937_jump
