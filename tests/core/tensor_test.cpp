#include "core/tensor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "core/convert.h"
#include "support/errors.h"

namespace drover {
namespace {

TEST(Tensor, RowAndColumnRangesPointIntoTheSameMemory) {
    std::vector<float> data(24);
    const Tensor x = Tensor::of(data.data(), {4, 6});
    const Tensor part = x.rows(1, 2).columns(2, 3);
    EXPECT_EQ(part.shape(), (Shape{2, 3}));
    EXPECT_EQ(part.data<float>(), data.data() + 8);
    EXPECT_EQ(part.stride(0), 6);
    EXPECT_FALSE(part.packed());
    EXPECT_TRUE(x.rows(1, 2).packed());
}

TEST(Tensor, ColumnsSplitIntoHeadsKeepTheRowStride) {
    std::vector<float> data(2 * 12);
    const Tensor heads = Tensor::of(data.data(), {2, 12}).columns(4, 8).split_columns(4, 2);
    EXPECT_EQ(heads.shape(), (Shape{2, 4, 2}));
    EXPECT_EQ(heads.stride(0), 12);
    EXPECT_EQ(heads.stride(1), 2);
}

TEST(Tensor, AbsentTensorIsFalse) {
    EXPECT_FALSE(Tensor());
}

TEST(TensorDeathTest, RangesOutsideAreBugs) {
    std::vector<float> data(6);
    const Tensor x = Tensor::of(data.data(), {2, 3});
    EXPECT_DEATH(x.rows(1, 2), "row range");
    EXPECT_DEATH(x.columns(3, 1), "column range");
    EXPECT_DEATH(x.data<bf16>(), "another type");
}

TEST(DType, Bf16RoundsToNearestEvenAndKeepsNan) {
    EXPECT_EQ(bf16(1.0f).bits, 0x3F80);
    EXPECT_EQ(bf16(1.00390625f).bits, 0x3F80);  // half way: to even
    EXPECT_EQ(bf16(1.01171875f).bits, 0x3F82);  // half way: to even, upwards
    EXPECT_EQ(bf16(std::nextafter(1.00390625f, 2.0f)).bits, 0x3F81);
    EXPECT_TRUE(std::isnan(static_cast<float>(bf16(std::numeric_limits<float>::quiet_NaN()))));
    EXPECT_TRUE(std::isinf(static_cast<float>(bf16(3.4e38f))));
}

TEST(DType, HalfSurvivesARoundTripOfAllItsValues) {
    for (std::uint32_t word = 0; word < 65536; ++word) {
        f16 half;
        half.bits = static_cast<std::uint16_t>(word);
        const float value = static_cast<float>(half);
        if (std::isnan(value))
            EXPECT_TRUE(std::isnan(static_cast<float>(f16(value))));
        else
            EXPECT_EQ(f16(value).bits, half.bits) << word;
    }
    EXPECT_EQ(f16(65519.9f).bits, 0x7BFF);
    EXPECT_EQ(f16(65520.0f).bits, 0x7C00);
    EXPECT_EQ(f16(0x1p-25f).bits, 0);  // half of the smallest subnormal: to even
    EXPECT_EQ(f16(0x1.8p-25f).bits, 1);
    EXPECT_EQ(f16(-0.0f).bits, 0x8000);
}

TEST(DType, NamesOfUsersAreUnderstood) {
    EXPECT_EQ(floating_dtype_from_name("torch.bfloat16", "dtype"), DType::bf16);
    EXPECT_EQ(floating_dtype_from_name("fp32", "dtype"), DType::f32);
    test::expect_error([] { floating_dtype_from_name("int8", "config.json: dtype"); },
                       {"config.json: dtype is \"int8\""});
}

TEST(Convert, AllFloatingPairs) {
    const std::vector<double> source = {0, 1, -2.5, 1e-3, 65504};
    for (const DType middle : {DType::f32, DType::bf16, DType::f16, DType::f64}) {
        std::vector<std::byte> bytes(source.size() * size_of(middle));
        std::vector<double> back(source.size());
        const auto count = static_cast<std::int64_t>(source.size());
        convert_elements(source.data(), DType::f64, bytes.data(), middle, count);
        convert_elements(bytes.data(), middle, back.data(), DType::f64, count);
        for (std::size_t i = 0; i < source.size(); ++i)
            EXPECT_NEAR(back[i], source[i], std::fabs(source[i]) / 256);
    }
}

}  // namespace
}  // namespace drover
