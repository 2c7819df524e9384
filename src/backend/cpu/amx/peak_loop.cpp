#include "backend/cpu/amx/peak_loop.h"

#include <omp.h>

#include "backend/cpu/amx/tiles.h"

namespace drover::cpu::amx {

double peak_loop(std::int64_t repetitions) {
    constexpr double flops_per_product = 2.0 * 16 * 16 * 32;
    int threads = 1;
#pragma omp parallel
    {
#pragma omp single
        threads = omp_get_num_threads();
        HardwareTiles::configure();  // makes all tiles zero
        for (std::int64_t i = 0; i < repetitions; ++i) {
            HardwareTiles::multiply<0, 4, 6>();
            HardwareTiles::multiply<1, 4, 7>();
            HardwareTiles::multiply<2, 5, 6>();
            HardwareTiles::multiply<3, 5, 7>();
        }
        HardwareTiles::release();
    }
    return flops_per_product * 4 * static_cast<double>(repetitions) * threads;
}

}  // namespace drover::cpu::amx
