#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "backend/attention_cases.h"
#include "backend/run_settings.h"

namespace drover::test {

/// Summation in fp32, relative to the norm of the result.
inline constexpr double f32_tolerance = 2e-6;
/// Rounding to bf16: of results, of the stored output, from which backward computes delta, and of the weights
/// and their gradients if they are multiplied in bf16.
inline constexpr double bf16_tolerance = 1.5 / 256;
/// The same for fp16, which has three more digits.
inline constexpr double f16_tolerance = 2.0 / 2048;

inline double attention_tolerance(DType dtype) {
    return dtype == DType::f32 ? f32_tolerance : dtype == DType::bf16 ? bf16_tolerance : f16_tolerance;
}

/// The types that the backend under test computes in.
inline std::vector<DType> attention_types() {
    std::vector<DType> types = {DType::f32, DType::bf16};
    if (tests_use_cuda()) types.push_back(DType::f16);
    return types;
}

/// Close overall, and exactly zero at tokens that are in no sequence.
inline void expect_close(const AttentionBatch& batch, const Tensor& actual,
                         const std::vector<double>& expected, double tolerance, const char* what) {
    const std::vector<double> found = values(actual);
    ASSERT_EQ(found.size(), expected.size()) << what;
    double difference = 0, norm = 0;
    for (std::size_t i = 0; i < found.size(); ++i) {
        difference += (found[i] - expected[i]) * (found[i] - expected[i]);
        norm += expected[i] * expected[i];
    }
    // Differences of numbers around 1 may cancel: dq and dk vanish where a query sees only itself.
    const double floor = 1e-6 * std::sqrt(static_cast<double>(found.size()));
    EXPECT_LE(std::sqrt(difference), tolerance * std::sqrt(norm) + floor) << what;
    const std::vector<std::int64_t> owner = batch.owners();
    const std::size_t per_token = found.size() / owner.size();
    for (std::size_t i = 0; i < found.size(); ++i)
        if (owner[i / per_token] < 0) {
            ASSERT_EQ(found[i], 0) << what << " at " << i;
        }
}

/// Of two results with dq, dk and dv on the host.
template <class Gradients>
void expect_gradients_agree(const Gradients& found, const Gradients& expected, double tolerance) {
    EXPECT_LE(relative_error(found.dq, expected.dq), tolerance) << "dq";
    EXPECT_LE(relative_error(found.dk, expected.dk), tolerance) << "dk";
    EXPECT_LE(relative_error(found.dv, expected.dv), tolerance) << "dv";
}
template <class Gradients>
void expect_same_gradients(const Gradients& a, const Gradients& b) {
    EXPECT_TRUE(same_bits(a.dq, b.dq)) << "dq";
    EXPECT_TRUE(same_bits(a.dk, b.dk)) << "dk";
    EXPECT_TRUE(same_bits(a.dv, b.dv)) << "dv";
}

/// Puts conspicuous numbers at the tokens in no sequence: about 48, or 3 in fp16.
inline void fill_gaps(const AttentionBatch& batch, const AttentionInputs& inputs) {
    const std::vector<std::int64_t> owner = batch.owners();
    for (std::size_t i = 0; i < owner.size(); ++i)
        for (const OwnedTensor* tensor : {&inputs.q, &inputs.k, &inputs.v, &inputs.dout}) {
            const Tensor token = tensor->tensor().rows(static_cast<std::int64_t>(i), 1);
            if (owner[i] < 0) std::memset(token.raw(), 0x42, token.bytes());
        }
}

/// Forward and backward match the definition, whatever finite numbers are in the gaps.
inline void expect_right(Workbench& bench, const AttentionBatch& batch, DType dtype) {
    SCOPED_TRACE(std::string(name_of(dtype)));
    const AttentionInputs inputs(batch, dtype, 11);
    const AttentionReference expected(batch, inputs);
    fill_gaps(batch, inputs);
    const AttentionResults found = run(bench, batch, inputs);
    const double tolerance = attention_tolerance(dtype);
    expect_close(batch, found.out, expected.out, tolerance, "out");
    EXPECT_LE(relative_error(values(found.lse), expected.lse), f32_tolerance) << "lse";
    expect_close(batch, found.dq, expected.dq, tolerance, "dq");
    expect_close(batch, found.dk, expected.dk, tolerance, "dk");
    expect_close(batch, found.dv, expected.dv, tolerance, "dv");
}

}  // namespace drover::test
