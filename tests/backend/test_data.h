#pragma once

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "support/golden.h"

namespace drover::test {

/// Normal numbers with the given standard deviation, rounded to `dtype`; the same for the same seed.
inline OwnedTensor random_normal(DType dtype, const Shape& shape, unsigned seed, double deviation = 1,
                                 double mean = 0) {
    std::mt19937 generator(seed);
    std::normal_distribution<double> normal(mean, deviation);
    OwnedTensor exact(DType::f32, shape);
    for (std::int64_t i = 0; i < shape.numel(); ++i)
        exact.tensor().data<float>()[i] = static_cast<float>(normal(generator));
    return OwnedTensor::converted(exact, dtype);
}

/// Integers in [low, high).
inline OwnedTensor random_integers(const Shape& shape, unsigned seed, std::int32_t low, std::int32_t high) {
    std::mt19937 generator(seed);
    std::uniform_int_distribution<std::int32_t> uniform(low, high - 1);
    OwnedTensor result(DType::i32, shape);
    for (std::int64_t i = 0; i < shape.numel(); ++i)
        result.tensor().data<std::int32_t>()[i] = uniform(generator);
    return result;
}

}  // namespace drover::test
