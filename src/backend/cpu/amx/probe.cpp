#include "backend/cpu/amx/probe.h"

#include <cpuid.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

#include "backend/cpu/amx/tiles.h"

namespace drover::cpu::amx {
namespace {

bool processor_offers_it() {
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
    if (!__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx)) return false;
    constexpr unsigned amx_bf16 = 1u << 22, amx_tile = 1u << 24;
    return (edx & amx_bf16) && (edx & amx_tile) && __builtin_cpu_supports("x86-64-v4");
}

/// The kernel gives the large tile state only to processes that ask for it.
bool kernel_allows_it() {
    constexpr long request_permission = 0x1023, tile_data = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
    return syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
}

sigjmp_buf after_the_fault;

void leave_the_fault(int) {
    siglongjmp(after_the_fault, 1);
}

/// a[r][k] = r + 1 and b[k][c] = c + 1, so c[r][c] = 32·(r + 1)·(c + 1), which bf16 and fp32 hold exactly.
bool product_is_right() {
    alignas(64) std::uint16_t a[16][32], b[16][32];  // b: [pair of k][column][2]
    alignas(64) float c[16][16];
    const auto bf16_of = [](int small) {
        return static_cast<std::uint16_t>(__builtin_bit_cast(std::uint32_t, static_cast<float>(small)) >> 16);
    };
    for (int row = 0; row < 16; ++row)
        for (int column = 0; column < 32; ++column) {
            a[row][column] = bf16_of(row + 1);
            b[row][column] = bf16_of(column / 2 + 1);
        }
    HardwareTiles::configure();
    HardwareTiles::zero<0>();
    HardwareTiles::load<4>(a);
    HardwareTiles::load<6>(b);
    HardwareTiles::multiply<0, 4, 6>();
    HardwareTiles::store<0>(c);
    HardwareTiles::release();
    for (int row = 0; row < 16; ++row)
        for (int column = 0; column < 16; ++column)
            if (c[row][column] != 32.f * static_cast<float>((row + 1) * (column + 1))) return false;
    return true;
}

bool try_it() {
    if (!processor_offers_it() || !kernel_allows_it()) return false;
    struct sigaction handler = {}, before_illegal, before_segmentation;
    handler.sa_handler = leave_the_fault;
    sigemptyset(&handler.sa_mask);
    sigaction(SIGILL, &handler, &before_illegal);
    sigaction(SIGSEGV, &handler, &before_segmentation);
    // Filled only where no signal arrived in between: a plain local would be undefined after the jump.
    static volatile bool right;
    right = false;
    if (sigsetjmp(after_the_fault, 1) == 0) right = product_is_right();
    sigaction(SIGSEGV, &before_segmentation, nullptr);
    sigaction(SIGILL, &before_illegal, nullptr);
    return right;
}

}  // namespace

bool usable() {
    static const bool result = try_it();
    return result;
}

}  // namespace drover::cpu::amx
