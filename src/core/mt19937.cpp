#include "core/mt19937.h"

#include <algorithm>

#include "core/mt19937_jump.h"
#include "core/random_kernels.h"

namespace drover {

static_assert(random_kernels::mt_words == 624);

Mt19937::Mt19937(std::uint32_t seed) : outputs_{} {
    words_.fill(0);
    words_[0] = seed;
    for (std::uint32_t i = 1; i < words; ++i) {
        words_[i] = 1812433253u * (words_[i - 1] ^ (words_[i - 1] >> 30)) + i;
    }
}

void Mt19937::step_words() {
    random_kernels::kernels().next_words(words_.data());
    std::copy_n(words_.begin() + words, words, words_.begin());
    consumed_before_ += words;
}

void Mt19937::make_outputs() {
    step_words();
    random_kernels::kernels().temper(words_.data(), outputs_.data());
    used_ = 0;
}

void Mt19937::fill(std::span<std::uint32_t> out) {
    while (!out.empty()) {
        if (used_ == words) make_outputs();
        const std::size_t count = std::min(out.size(), words - used_);
        std::copy_n(outputs_.begin() + static_cast<std::ptrdiff_t>(used_), count, out.begin());
        used_ += count;
        out = out.subspan(count);
    }
}

void Mt19937::skip(std::uint64_t count) {
    const std::uint64_t left = words - used_;
    if (count <= left) {
        used_ += count;
        return;
    }
    used_ = words;
    count -= left;
    // From here on a jump is faster than stepping.
    constexpr std::uint64_t worth_a_jump = 3'000'000;
    if (count >= worth_a_jump) {
        mt19937_jump::advance(std::span(words_).first<words>(), mt19937_jump::power_of_x(count));
        consumed_before_ += count;
        return;
    }
    for (; count >= words; count -= words) step_words();
    if (count > 0) {
        make_outputs();
        used_ = count;
    }
}

}  // namespace drover
