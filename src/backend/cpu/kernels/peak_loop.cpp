#include <ctime>

#include "backend/cpu/kernels/vector_math.h"

namespace drover::cpu::DROVER_ISA {
namespace {

/// Enough independent chains to hide a multiply-add's latency on two units, few enough for the registers.
constexpr int chains = 12;

/// Keeps the compiler from dropping a chain whose result is unused, and from merging repetitions.
template <class Vector>
[[gnu::always_inline]] inline void keep(Vector& value) {
    asm volatile("" : "+x"(value));
}

void multiply_add(std::int64_t repetitions) {
    Floats sums[chains];
    for (Floats& sum : sums) sum = splat(1.0f);
    Floats factor = splat(0.5f), summand = splat(0.5f);
    keep(factor);
    keep(summand);
    for (std::int64_t i = 0; i < repetitions; ++i)
#pragma GCC unroll 12
        for (int chain = 0; chain < chains; ++chain) sums[chain] = sums[chain] * factor + summand;
    for (Floats& sum : sums) keep(sum);
}

#ifdef __AVX512F__
[[gnu::target("avx512bf16")]] void multiply_add_bf16(std::int64_t repetitions) {
    __m512 sums[chains];
    for (__m512& sum : sums) sum = _mm512_set1_ps(0.0f);
    __m512i bits = _mm512_set1_epi16(0x2F80);  // 2^-32 in bf16: the sums stay finite
    keep(bits);
    const auto factors = bits_as<__m512bh>(bits);
    for (std::int64_t i = 0; i < repetitions; ++i)
#pragma GCC unroll 12
        for (int chain = 0; chain < chains; ++chain)
            sums[chain] = _mm512_dpbf16_ps(sums[chain], factors, factors);
    for (__m512& sum : sums) keep(sum);
}
#endif

/// CPU time of this thread.
double processor_seconds() {
    timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

}  // namespace

void peak_loop(const PeakLoop& op) {
    const double flops_per_lane = 2.0 * chains * static_cast<double>(op.repetitions);
    double sum = 0;
#pragma omp parallel reduction(+ : sum)
    {
        double flops = lanes * flops_per_lane;
        const double begin = processor_seconds();
#ifdef __AVX512F__
        if (op.arithmetic == DType::bf16) {
            multiply_add_bf16(op.repetitions);
            flops *= 2;  // two products per lane
        } else
#endif
            multiply_add(op.repetitions);
        sum += flops / (processor_seconds() - begin);
    }
    *op.flops_per_second = sum;
}

}  // namespace drover::cpu::DROVER_ISA
