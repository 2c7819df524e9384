#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

/// Jumping far ahead in MT19937. Its state is a linear feedback register over GF(2), so n steps are the
/// polynomial x^n modulo the register's characteristic polynomial, applied to the state.
namespace drover::mt19937_jump {

/// Degree of the characteristic polynomial: bits of state that matter (624 words less 31 bits of the first
/// one).
inline constexpr std::size_t degree = 19937;

/// A polynomial of degree below `degree`; bit i % 64 of element i / 64 is the coefficient of x^i.
using Polynomial = std::array<std::uint64_t, (degree + 63) / 64>;

/// Exponents of the characteristic polynomial's terms, ascending; the last one is `degree`.
std::span<const std::uint16_t> characteristic_exponents();

/// x^steps modulo the characteristic polynomial.
Polynomial power_of_x(std::uint64_t steps);

/// Moves a window of 624 consecutive (untempered) words of the generator's sequence ahead by n words, where
/// `polynomial` is x^n. The low 31 bits of the window's first word are arbitrary afterwards; no later word
/// depends on them.
void advance(std::span<std::uint32_t, 624> words, const Polynomial& polynomial);

}  // namespace drover::mt19937_jump
