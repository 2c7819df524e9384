#pragma once

#include <cuda_runtime_api.h>

#include "backend/cuda/gpu.h"
#include "backend/cuda/scratch.h"
#include "backend/ops/list.h"

/// The hand-written kernels, one function for each operation of ops/list.h, in kernels/. It enqueues its
/// operation on the stream and returns; it never waits for the device. All are deterministic: sums are made
/// in an order that depends on sizes only. The attention kernels use plain arithmetic, for cases that cuDNN
/// does not support (fp32, odd head sizes).
namespace drover::cuda {

/// Where an operation runs.
struct Launch {
    cudaStream_t stream;
    Scratch& scratch;    ///< valid until the function's last kernel has run
    DeviceTable& table;  ///< this operation's own
    const Gpu& gpu;
};

#define DROVER_DECLARE(name, Listed) void name(const Launch& launch, const Listed& operation);
DROVER_KERNEL_OPERATIONS(DROVER_DECLARE)
#undef DROVER_DECLARE

}  // namespace drover::cuda
