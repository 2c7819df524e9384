#pragma once

#include <cstdint>

namespace drover::cpu::DROVER_ISA {

constexpr std::int64_t round_up(std::int64_t count, std::int64_t unit) {
    return (count + unit - 1) / unit * unit;
}

constexpr std::int64_t smaller(std::int64_t a, std::int64_t b) {
    return a < b ? a : b;
}

constexpr std::int64_t larger(std::int64_t a, std::int64_t b) {
    return a < b ? b : a;
}

}  // namespace drover::cpu::DROVER_ISA
