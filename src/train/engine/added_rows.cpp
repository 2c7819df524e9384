#include "train/engine/added_rows.h"

#include <cmath>

#include "backend/backend.h"

namespace drover {
namespace {

/// Replaces the lower triangle of a symmetric matrix by its Cholesky factor; false if it has none.
bool cholesky(std::vector<float>& matrix, std::int64_t size) {
    float* const l = matrix.data();
    const auto inner = [&](std::int64_t a, std::int64_t b, std::int64_t count) {
        const float* x = l + a * size;
        const float* y = l + b * size;
        float sum = 0;
#pragma omp simd reduction(+ : sum)
        for (std::int64_t i = 0; i < count; ++i) sum += x[i] * y[i];
        return sum;
    };
    for (std::int64_t column = 0; column < size; ++column) {
        const float square = l[column * size + column] - inner(column, column, column);
        if (!(square > 0)) return false;
        const float diagonal = std::sqrt(square);
        l[column * size + column] = diagonal;
#pragma omp parallel for if (column > 256)
        for (std::int64_t row = column + 1; row < size; ++row)
            l[row * size + column] = (l[row * size + column] - inner(row, column, column)) / diagonal;
    }
    return true;
}

std::vector<float> mean_row(std::span<const float> rows, std::int64_t columns) {
    std::vector<double> sums(static_cast<std::size_t>(columns), 0.0);
    for (std::size_t i = 0; i < rows.size(); ++i) sums[i % sums.size()] += static_cast<double>(rows[i]);
    std::vector<float> mean;
    for (const double sum : sums)
        mean.push_back(
            static_cast<float>(sum * static_cast<double>(columns) / static_cast<double>(rows.size())));
    return mean;
}

/// The covariance of the rows times 1e-9.
std::vector<float> scaled_covariance(std::span<const float> rows, const std::vector<float>& mean) {
    const auto columns = static_cast<std::int64_t>(mean.size());
    const std::int64_t count = static_cast<std::int64_t>(rows.size()) / columns;
    std::vector<float> centered(rows.begin(), rows.end()), covariance(mean.size() * mean.size());
    for (std::size_t i = 0; i < centered.size(); ++i) centered[i] -= mean[i % mean.size()];
    const auto backend = make_cpu_backend();
    const Tensor x = Tensor::of(centered.data(), {count, columns});
    backend->run(
        backend->main_stream(),
        Gemm{.a = x, .b = x, .c = Tensor::of(covariance.data(), {columns, columns}), .transpose_a = true});
    backend->synchronize(backend->main_stream());
    for (float& value : covariance) value = 1e-9f * (value / static_cast<float>(count));
    return covariance;
}

}  // namespace

std::vector<float> draw_added_rows(std::span<const float> old_rows, std::int64_t columns, std::int64_t added,
                                   TorchRng& generator) {
    const std::vector<float> mean = mean_row(old_rows, columns);
    std::vector<float> factor = scaled_covariance(old_rows, mean);
    std::vector<float> result;
    for (std::int64_t i = 0; i < added; ++i) result.insert(result.end(), mean.begin(), mean.end());
    if (!cholesky(factor, columns)) return result;

    std::vector<float> normals(result.size());
    generator.fill_normal(normals, 0.0, 1.0);
    for (std::int64_t row = 0; row < added; ++row)
        for (std::int64_t i = 0; i < columns; ++i) {
            double sum = 0;
            for (std::int64_t j = 0; j <= i; ++j)
                sum += static_cast<double>(factor[static_cast<std::size_t>(i * columns + j)]) *
                       static_cast<double>(normals[static_cast<std::size_t>(row * columns + j)]);
            result[static_cast<std::size_t>(row * columns + i)] += static_cast<float>(sum);
        }
    return result;
}

}  // namespace drover
