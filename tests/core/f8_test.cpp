#include <gtest/gtest.h>

#include <cmath>

#include "core/dtype.h"
#include "support/golden.h"

namespace drover {
namespace {

float value_of(std::size_t code) {
    f8 number;
    number.bits = static_cast<std::uint8_t>(code);
    return static_cast<float>(number);
}

TEST(F8, EveryCodeHasPyTorchsValueAndReturnsToItself) {
    const SafetensorsFile golden(test::golden_path("fp8/numbers.safetensors"));
    const float* expected = golden.tensor("decoded").data<float>();
    for (std::size_t code = 0; code < 256; ++code) {
        const float value = value_of(code);
        if (std::isnan(expected[code])) {
            EXPECT_TRUE(std::isnan(value)) << code;
            EXPECT_EQ(code & 0x7F, 0x7Fu);
            EXPECT_EQ(f8(value).bits & 0x7F, 0x7F) << code;
            continue;
        }
        EXPECT_EQ(value, expected[code]) << code;
        EXPECT_EQ(std::signbit(value), code >= 128) << code;
        EXPECT_EQ(f8(value).bits, code);
    }
}

/// On, beside and half way between all numbers, and beyond the largest.
TEST(F8, RoundsAsPyTorchDoes) {
    const SafetensorsFile golden(test::golden_path("fp8/numbers.safetensors"));
    const Tensor x = golden.tensor("x");
    const auto* codes = static_cast<const std::uint8_t*>(golden.tensor("codes").raw());
    ASSERT_GT(x.numel(), 2000);
    for (std::int64_t i = 0; i < x.numel(); ++i) {
        const float value = x.data<float>()[i];
        if (std::isnan(value))
            EXPECT_EQ(f8(value).bits & 0x7F, 0x7F);
        else
            EXPECT_EQ(f8(value).bits, codes[i]) << value;
    }
}

}  // namespace
}  // namespace drover
