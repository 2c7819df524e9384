#pragma once

#include "backend/ops/operation.h"

namespace drover {

/// A device's measured peak rates, which other rates are compared with.
struct MachinePeaks {
    double fp32_flops = 0;        ///< per second, multiply-adds on values in registers
    double bf16_flops = 0;        ///< per second, products of bf16 summed in fp32
    double rated_bf16_flops = 0;  ///< the manufacturer's figure for dense products, 0: unknown
    double bandwidth = 0;         ///< bytes read and written per second by a copy that no cache can hold

    /// The reference for utilisation: the manufacturer's figure where it is known, else the measured one.
    double reference_flops(DType arithmetic) const {
        const bool rated = rated_bf16_flops > 0 && arithmetic != DType::f32;
        return rated ? rated_bf16_flops : flops(arithmetic);
    }
    double flops(DType arithmetic) const { return arithmetic == DType::f32 ? fp32_flops : bf16_flops; }
};

/// How fast an operation of this cost went: flops or bytes per second, whichever bounds it, and its share of
/// the peak. A memory-bound operation whose operands were still in a cache may exceed 1.
struct OperationRate {
    double per_second = 0;
    double of_peak = 0;
    bool arithmetic = false;  ///< per_second are flops
};

inline OperationRate rate_of(const OperationCost& cost, double seconds, const MachinePeaks& peaks) {
    const bool arithmetic = cost.flops > 0;
    const double peak = arithmetic ? peaks.flops(cost.arithmetic) : peaks.bandwidth;
    const double per_second = seconds > 0 ? (arithmetic ? cost.flops : cost.bytes) / seconds : 0;
    return {.per_second = per_second, .of_peak = peak > 0 ? per_second / peak : 0, .arithmetic = arithmetic};
}

}  // namespace drover
