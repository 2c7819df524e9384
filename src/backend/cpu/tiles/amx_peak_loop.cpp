#include "backend/cpu/tiles/amx_peak_loop.h"

#include <omp.h>

#include "backend/cpu/tiles/amx_instructions.h"

namespace drover::cpu::tiles {

double amx_peak_loop(std::int64_t repetitions) {
    constexpr double flops_per_product = 2.0 * 16 * 16 * 32;
    int threads = 1;
#pragma omp parallel
    {
#pragma omp single
        threads = omp_get_num_threads();
        configure_tiles();  // makes all tiles zero
        for (std::int64_t i = 0; i < repetitions; ++i) {
            multiply_tiles<0, 4, 6>();
            multiply_tiles<1, 4, 7>();
            multiply_tiles<2, 5, 6>();
            multiply_tiles<3, 5, 7>();
        }
        release_tiles();
    }
    return flops_per_product * 4 * static_cast<double>(repetitions) * threads;
}

}  // namespace drover::cpu::tiles
