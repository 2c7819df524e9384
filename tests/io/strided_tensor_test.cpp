#include "io/strided_tensor.h"

#include <gtest/gtest.h>

#include <numeric>

namespace drover {
namespace {

/// Elements 0, 1, 2, … of any size, seen with these sizes and strides.
template <class T>
struct Numbers {
    std::vector<T> elements;
    StridedTensor tensor;

    Numbers(FileDType dtype, std::vector<std::int64_t> shape, std::vector<std::int64_t> strides)
        : elements(4096) {
        std::iota(elements.begin(), elements.end(), T{});
        tensor = {.data = reinterpret_cast<const std::byte*>(elements.data()),
                  .dtype = dtype,
                  .shape = std::move(shape),
                  .strides = std::move(strides)};
    }
};

TEST(StridedTensor, BlocksOfRowsAndColumnsAreCopied) {
    const Numbers<std::uint16_t> packed(FileDType::BF16, {5, 7}, {7, 1});
    std::vector<std::uint16_t> copy(3 * 10, 9999);
    copy_block(packed.tensor, 1, 3, 2, 4, reinterpret_cast<std::byte*>(copy.data()), 10);
    for (std::size_t row = 0; row < 3; ++row)
        for (std::size_t column = 0; column < 10; ++column)
            EXPECT_EQ(copy[row * 10 + column], column < 4 ? (row + 1) * 7 + column + 2 : 9999);
}

TEST(StridedTensor, OuterDimensionsAreRows) {
    // Padded rows inside padded matrices.
    const Numbers<std::uint32_t> numbers(FileDType::F32, {2, 3, 4}, {100, 10, 2});
    EXPECT_EQ(numbers.tensor.rows(), 6);
    EXPECT_EQ(numbers.tensor.columns(), 4);
    std::vector<std::uint32_t> copy(24);
    copy_block(numbers.tensor, 0, 6, 0, 4, reinterpret_cast<std::byte*>(copy.data()), 4);
    for (std::uint32_t i = 0; i < 24; ++i) EXPECT_EQ(copy[i], i / 12 * 100 + i / 4 % 3 * 10 + i % 4 * 2) << i;
    const Numbers<std::uint32_t> scalar(FileDType::F32, {}, {}), vector(FileDType::F32, {5}, {1});
    EXPECT_EQ(scalar.tensor.rows() * scalar.tensor.columns(), 1);
    EXPECT_EQ(vector.tensor.rows(), 1);
}

TEST(StridedTensor, RowsCanBeTakenApart) {
    const Numbers<std::uint16_t> numbers(FileDType::BF16, {7, 3}, {3, 1});
    const StridedTensor apart = numbers.tensor.rows_apart(1, 2);
    ASSERT_EQ(apart.rows(), 3);
    std::vector<std::uint16_t> copy(9);
    copy_block(apart, 0, 3, 0, 3, reinterpret_cast<std::byte*>(copy.data()), 3);
    EXPECT_EQ(copy, (std::vector<std::uint16_t>{3, 4, 5, 9, 10, 11, 15, 16, 17}));
    EXPECT_EQ(numbers.tensor.rows_apart(0, 2).rows(), 4);
}

TEST(StridedTensor, TransposingGivesTheColumnsAsRows) {
    // More than a tile each way, from a packed matrix and from one that is stored transposed.
    for (const bool stored_transposed : {false, true}) {
        const Numbers<std::uint16_t> numbers(
            FileDType::F16, {70, 50},
            stored_transposed ? std::vector<std::int64_t>{1, 70} : std::vector<std::int64_t>{50, 1});
        std::vector<std::uint16_t> copy(48 * 68, 0), straight(68 * 48, 0);
        copy_block_transposed(numbers.tensor, 1, 68, 2, 48, reinterpret_cast<std::byte*>(copy.data()), 68);
        copy_block(numbers.tensor, 1, 68, 2, 48, reinterpret_cast<std::byte*>(straight.data()), 48);
        for (std::size_t row = 0; row < 68; ++row)
            for (std::size_t column = 0; column < 48; ++column) {
                const std::size_t expected =
                    stored_transposed ? (row + 1) + (column + 2) * 70 : (row + 1) * 50 + column + 2;
                ASSERT_EQ(straight[row * 48 + column], expected);
                ASSERT_EQ(copy[column * 68 + row], expected);
            }
    }
}

}  // namespace
}  // namespace drover
