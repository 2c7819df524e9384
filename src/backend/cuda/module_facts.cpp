#include <cuda_runtime_api.h>
#include <cudnn.h>

#include "backend/cuda/module_interface.h"

drover::CudaModuleFacts drover_cuda_module_facts() {
    drover::CudaModuleFacts facts{.architectures = DROVER_CUDA_ARCHITECTURES,
                                  .runtime_version = 0,
                                  .cudnn_version = static_cast<int>(cudnnGetVersion())};
    cudaRuntimeGetVersion(&facts.runtime_version);
    return facts;
}
