#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace drover {

/// An adapter of one weight, in float32.
struct LowRankChange {
    std::span<const float> a;          ///< [rank,in]
    std::span<const float> b;          ///< [out,rank]
    std::span<const float> magnitude;  ///< [out], or empty: not DoRA
    std::int64_t rank = 0;
    double scale = 1;
};

/// W [rows,columns] becomes W + scale·B·A; with magnitudes, its rows then get these lengths. Each row is
/// computed alike for any number of threads.
void merge_low_rank(const LowRankChange& change, std::int64_t rows, std::int64_t columns,
                    std::span<float> weight);

/// [rows,columns] → [columns,rows]. The embedding's A and B adapt the transpose of its weight.
std::vector<float> transposed(std::span<const float> values, std::int64_t rows, std::int64_t columns);

}  // namespace drover
