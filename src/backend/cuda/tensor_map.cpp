#include "backend/cuda/kernels/tensor_map.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include "backend/cuda/cuda_error.h"

namespace drover::cuda {
namespace {

/// The driver's function, looked up at run time so that the module does not link with the driver.
decltype(&cuTensorMapEncodeTiled) encoder() {
    static const auto function = [] {
        void* found = nullptr;
        cudaDriverEntryPointQueryResult result{};
        check(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault,
                                               &result),
              "the driver's cuTensorMapEncodeTiled");
        if (result != cudaDriverEntryPointSuccess || found == nullptr)
            throw Error(
                "The GPU's driver has no cuTensorMapEncodeTiled.",
                "Update the driver, or set DROVER_GROUPED_GEMM=cublas and DROVER_ATTENTION_BACKWARD=cudnn.");
        return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(found);
    }();
    return function;
}

CUtensorMapDataType data_type(DType dtype) {
    switch (dtype) {
        case DType::bf16:
            return CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
        case DType::f16:
            return CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
        case DType::f8:
            return CU_TENSOR_MAP_DATA_TYPE_UINT8;
        default:
            bug("no tensor maps of this dtype");
    }
}

}  // namespace

CUtensorMap make_tensor_map(DType dtype, const TensorMapShape& shape) {
    const std::array<cuuint64_t, 3> sizes = {static_cast<cuuint64_t>(shape.sizes[0]),
                                             static_cast<cuuint64_t>(shape.sizes[1]),
                                             static_cast<cuuint64_t>(shape.sizes[2])};
    const std::array<cuuint64_t, 2> strides = {static_cast<cuuint64_t>(shape.byte_strides[0]),
                                               static_cast<cuuint64_t>(shape.byte_strides[1])};
    const std::array<cuuint32_t, 3> box = {static_cast<cuuint32_t>(shape.box[0]),
                                           static_cast<cuuint32_t>(shape.box[1]), 1};
    const std::array<cuuint32_t, 3> every = {1, 1, 1};
    CUtensorMap map{};
    const CUresult result =
        encoder()(&map, data_type(dtype), 3, shape.start, sizes.data(), strides.data(), box.data(),
                  every.data(), CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                  CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (result != CUDA_SUCCESS)
        throw Error(fmt::format("The GPU's driver refuses to describe a tensor of [{}, {}, {}] elements with "
                                "rows of {} bytes (error {}).",
                                shape.sizes[2], shape.sizes[1], shape.sizes[0], shape.byte_strides[0],
                                static_cast<int>(result)),
                    "Set DROVER_GROUPED_GEMM=cublas and DROVER_ATTENTION_BACKWARD=cudnn, and please report it.");
    return map;
}

}  // namespace drover::cuda
