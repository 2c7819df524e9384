#include <vector>

#include "backend/cuda/kernels/adafactor_shares.cuh"

namespace drover::cuda {
namespace {

struct Matrix {
    float *row_sums, *column_sums, *row_means, *column_means;
    std::int64_t rows, columns;
};

/// means ← old · means + newest · (sums / count + eps), by the threads of a block. Returns a thread's part of
/// their sum.
__device__ double update_means(float* means, const float* sums, std::int64_t length, std::int64_t count,
                               Shares shares, float eps) {
    double total = 0;
    for (std::int64_t i = threadIdx.x; i < length; i += blockDim.x) {
        means[i] = shares.mean(means[i], sums[i] / static_cast<float>(count) + eps);
        total += static_cast<double>(means[i]);
    }
    return total;
}

/// factors = (means / scale)^−½
__device__ void factors_of(const float* means, float scale, std::int64_t length, float* factors) {
    for (std::int64_t i = threadIdx.x; i < length; i += blockDim.x)
        factors[i] = 1.f / sqrtf(means[i] / scale);
}

/// One block per matrix. A thread reads only what it wrote itself, but for the sum.
__global__ void __launch_bounds__(1024)
    make_factors(const Matrix* matrices, const float* scalars, float eps) {
    if (scalars[StepScalar::skips] != 0) return;
    const Matrix matrix = matrices[blockIdx.x];
    const Shares shares(scalars);
    const double total =
        block_sum(update_means(matrix.row_means, matrix.row_sums, matrix.rows, matrix.columns, shares, eps));
    update_means(matrix.column_means, matrix.column_sums, matrix.columns, matrix.rows, shares, eps);
    factors_of(matrix.row_means, static_cast<float>(total / static_cast<double>(matrix.rows)), matrix.rows,
               matrix.row_sums);
    factors_of(matrix.column_means, 1, matrix.columns, matrix.column_sums);
}

}  // namespace

void adafactor_factors(const Launch& launch, const AdafactorFactors& op) {
    if (op.matrices.empty()) return;
    std::vector<Matrix> matrices;
    matrices.reserve(op.matrices.size());
    for (const AdafactorMatrix& matrix : op.matrices)
        matrices.push_back({elements<float>(matrix.row_sums), elements<float>(matrix.column_sums),
                            elements<float>(matrix.row_means), elements<float>(matrix.column_means),
                            matrix.row_sums.size(0), matrix.column_sums.size(0)});
    make_factors<<<matrices.size(), 1024, 0, launch.stream>>>(launch.table.upload(launch.stream, matrices),
                                                              elements<const float>(op.scalars), op.eps);
    check_launch("adafactor_factors");
}

}  // namespace drover::cuda
