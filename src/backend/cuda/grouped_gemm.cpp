#include "backend/cuda/grouped_gemm.h"

#include "backend/cuda/cuda_error.h"

namespace drover::cuda {

GroupedGemmEngine::~GroupedGemmEngine() {
    if (host_ != nullptr) cudaFreeHost(host_);
    if (arrived_ != nullptr) cudaEventDestroy(arrived_);
}

const std::int32_t* GroupedGemmEngine::read_offsets(const Launch& launch, const Tensor& offsets) {
    if (arrived_ == nullptr) check(cudaEventCreateWithFlags(&arrived_, cudaEventDisableTiming), "an event");
    if (offsets.bytes() > capacity_) {
        if (host_ != nullptr) check(cudaFreeHost(host_), "host memory for the experts' offsets");
        host_ = nullptr;
        check(cudaMallocHost(reinterpret_cast<void**>(&host_), offsets.bytes()),
              "host memory for the experts' offsets");
        capacity_ = offsets.bytes();
    }
    check(cudaMemcpyAsync(host_, offsets.raw(), offsets.bytes(), cudaMemcpyDeviceToHost, launch.stream),
          "the experts' offsets");
    check(cudaEventRecord(arrived_, launch.stream), "the experts' offsets");
    check(cudaEventSynchronize(arrived_), "operations before a grouped product");
    return host_;
}

void GroupedGemmEngine::run(const Launch& launch, GemmEngine& products, const GroupedGemm& op) {
    const std::int64_t experts = op.offsets.size(0) - 1;
    const bool makes_weights = op.use == GroupedGemm::Use::weight_gradient;
    const Tensor& stacked = makes_weights ? op.c : op.b;
    const std::int64_t height = stacked.size(0) / experts;
    if (op.c.numel() == 0) return;
    const std::int32_t* offsets = read_offsets(launch, op.offsets);
    for (std::int64_t e = 0; e < experts; ++e) {
        const std::int64_t begin = offsets[e], count = offsets[e + 1] - begin;
        const Tensor matrix = stacked.rows(e * height, height);
        if (count == 0) {
            if (makes_weights && !op.accumulate) {
                const std::size_t element = size_of(matrix.dtype());
                check(cudaMemset2DAsync(matrix.raw(), static_cast<std::size_t>(matrix.stride(0)) * element, 0,
                                        static_cast<std::size_t>(matrix.size(1)) * element,
                                        static_cast<std::size_t>(height), launch.stream),
                      "the gradient of an expert without tokens");
            }
            continue;
        }
        const Tensor rows = op.a.rows(begin, count);
        switch (op.use) {
            case GroupedGemm::Use::forward:
                products.run(launch, Gemm::forward(rows, matrix, op.c.rows(begin, count)));
                break;
            case GroupedGemm::Use::data_gradient:
                products.run(launch, Gemm::data_gradient(rows, matrix, op.c.rows(begin, count)));
                break;
            case GroupedGemm::Use::weight_gradient:
                products.run(launch,
                             Gemm::weight_gradient(rows, op.b.rows(begin, count), matrix, op.accumulate));
                break;
        }
    }
}

}  // namespace drover::cuda
