#include "peft/low_rank_merge.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/error.h"

namespace drover {
namespace {

/// y += factor · x
void add_scaled(float* y, const float* x, float factor, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) y[i] += factor * x[i];
}

}  // namespace

void merge_low_rank(const LowRankChange& change, std::int64_t rows, std::int64_t columns,
                    std::span<float> weight) {
    const std::int64_t rank = change.rank;
    const auto has = [](std::span<const float> values, std::int64_t count) {
        return static_cast<std::int64_t>(values.size()) == count;
    };
    require(has(weight, rows * columns) && has(change.a, rank * columns) && has(change.b, rows * rank) &&
                (change.magnitude.empty() || has(change.magnitude, rows)),
            "an adapter of another size than its weight");
    const auto scale = static_cast<float>(change.scale);
#pragma omp parallel
    {
        std::vector<float> delta(static_cast<std::size_t>(columns));
#pragma omp for schedule(static)
        for (std::int64_t row = 0; row < rows; ++row) {
            float* const w = weight.data() + row * columns;
            std::ranges::fill(delta, 0.0F);
            for (std::int64_t r = 0; r < rank; ++r)
                add_scaled(delta.data(), change.a.data() + r * columns,
                           change.b[static_cast<std::size_t>(row * rank + r)], columns);
            add_scaled(w, delta.data(), scale, columns);
            if (change.magnitude.empty()) continue;
            double squares = 0;
            for (std::int64_t i = 0; i < columns; ++i) squares += static_cast<double>(w[i]) * w[i];
            const auto factor =
                static_cast<float>(change.magnitude[static_cast<std::size_t>(row)] / std::sqrt(squares));
            for (std::int64_t i = 0; i < columns; ++i) w[i] *= factor;
        }
    }
}

std::vector<float> transposed(std::span<const float> values, std::int64_t rows, std::int64_t columns) {
    std::vector<float> result(values.size());
    for (std::int64_t row = 0; row < rows; ++row)
        for (std::int64_t column = 0; column < columns; ++column)
            result[static_cast<std::size_t>(column * rows + row)] =
                values[static_cast<std::size_t>(row * columns + column)];
    return result;
}

}  // namespace drover
