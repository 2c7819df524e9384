#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "core/convert.h"
#include "io/model_folder.h"
#include "support/golden.h"

namespace drover {
namespace {

using test::OwnedTensor;
using test::values;

constexpr DType floating[] = {DType::f32, DType::bf16, DType::f16, DType::f64};

/// Values that every floating type holds exactly.
double exact_value(std::int64_t index) {
    return static_cast<double>(index % 251) / 4 - 31;
}

OwnedTensor numbered(DType dtype, const Shape& shape) {
    OwnedTensor exact(DType::f64, shape);
    for (std::int64_t i = 0; i < shape.numel(); ++i) exact.tensor().data<double>()[i] = exact_value(i);
    return OwnedTensor::converted(exact, dtype);
}

TEST(ReadRows, EveryPairOfTypesAndEveryRange) {
    constexpr std::int64_t rows = 9, columns = 5;
    for (const DType from : floating)
        for (const DType to : floating)
            for (std::int64_t begin = 0; begin <= rows; ++begin)
                for (std::int64_t count = 0; begin + count <= rows; ++count) {
                    const OwnedTensor source = numbered(from, {rows, columns});
                    const OwnedTensor destination(to, {count, columns});
                    read_rows(source, begin, count, destination);
                    const auto read = values(destination);
                    for (std::size_t i = 0; i < read.size(); ++i)
                        ASSERT_EQ(read[i], exact_value(begin * columns + static_cast<std::int64_t>(i)));
                }
}

TEST(ReadRows, LargeTensorsAreCutIntoPiecesWithoutSeams) {
    constexpr std::int64_t rows = 37, columns = 8191;
    const OwnedTensor source = numbered(DType::bf16, {rows, columns});
    const OwnedTensor destination(DType::f32, {rows - 3, columns});
    read_rows(source, 2, rows - 3, destination);
    const auto read = values(destination);
    for (std::size_t i = 0; i < read.size(); ++i)
        ASSERT_EQ(read[i], exact_value(2 * columns + static_cast<std::int64_t>(i))) << i;
}

TEST(ReadRows, VectorsAndStacksOfMatrices) {
    const OwnedTensor vector = numbered(DType::f16, {11});
    const OwnedTensor part(DType::f32, {4});
    read_rows(vector, 5, 4, part);
    EXPECT_EQ(values(part),
              (std::vector<double>{exact_value(5), exact_value(6), exact_value(7), exact_value(8)}));

    const OwnedTensor stack = numbered(DType::f32, {3, 2, 4});
    const OwnedTensor middle(DType::bf16, {1, 2, 4});
    read_rows(stack, 1, 1, middle);
    for (std::size_t i = 0; i < 8; ++i)
        EXPECT_EQ(values(middle)[i], exact_value(8 + static_cast<std::int64_t>(i)));
}

TEST(ReadRows, FillsARangeOfColumnsAndNothingElse) {
    const OwnedTensor source = numbered(DType::f32, {3, 2});
    const OwnedTensor wide(DType::f32, {3, 5});
    read_rows(source, 0, 3, wide.tensor().columns(1, 2));
    const auto all = values(wide);
    for (std::size_t row = 0; row < 3; ++row)
        for (std::size_t column = 0; column < 5; ++column) {
            const bool inside = column == 1 || column == 2;
            const double value = all[row * 5 + column];
            if (inside)
                EXPECT_EQ(value, exact_value(static_cast<std::int64_t>(row * 2 + column - 1)));
            else
                EXPECT_TRUE(std::isnan(value));
        }
}

TEST(ReadBlock, EveryRangeOfColumns) {
    constexpr std::int64_t rows = 4, columns = 7;
    const OwnedTensor source = numbered(DType::bf16, {rows, columns});
    for (std::int64_t begin = 0; begin <= columns; ++begin)
        for (std::int64_t count = 0; begin + count <= columns; ++count) {
            const OwnedTensor destination(DType::f32, {2, count});
            read_block(source, 1, 2, begin, count, destination);
            const auto read = values(destination);
            for (std::size_t i = 0; i < read.size(); ++i) {
                const auto row = 1 + static_cast<std::int64_t>(i) / count;
                const auto column = begin + static_cast<std::int64_t>(i) % count;
                ASSERT_EQ(read[i], exact_value(row * columns + column));
            }
        }
}

TEST(ReadBlock, HalvesOfALargeMatrixGiveTheWhole) {
    constexpr std::int64_t rows = 3, columns = 80'001, cut = 40'123;
    const OwnedTensor source = numbered(DType::f32, {rows, columns});
    const OwnedTensor whole(DType::bf16, {rows, columns});
    read_block(source, 0, rows, 0, cut, whole.tensor().columns(0, cut));
    read_block(source, 0, rows, cut, columns - cut, whole.tensor().columns(cut, columns - cut));
    const auto read = values(whole);
    for (std::size_t i = 0; i < read.size(); ++i)
        ASSERT_EQ(read[i], exact_value(static_cast<std::int64_t>(i))) << i;
}

// In files from old writers, data may start at any byte.
TEST(ReadRows, TheSourceNeedNotBeAligned) {
    constexpr std::int64_t count = 3000;
    for (const DType from : floating)
        for (const DType to : floating) {
            const OwnedTensor aligned = numbered(from, {count});
            std::vector<std::byte> shifted(aligned.tensor().bytes() + 1);
            std::memcpy(shifted.data() + 1, aligned.tensor().raw(), aligned.tensor().bytes());
            const OwnedTensor destination(to, {count});
            read_rows(Tensor(shifted.data() + 1, from, {count}), 0, count, destination);
            const auto read = values(destination);
            for (std::size_t i = 0; i < read.size(); ++i)
                ASSERT_EQ(read[i], exact_value(static_cast<std::int64_t>(i))) << i;
        }
}

TEST(ReadRows, RoundsToNearestEvenAndKeepsSpecialValues) {
    const float infinity = INFINITY;
    const float source[] = {1.00390625f, 1.01171875f, -infinity, NAN, 3.0e38f, -0.0f};
    const OwnedTensor destination(DType::bf16, {6});
    read_rows(Tensor::of(source, {6}), 0, 6, destination);
    const auto read = values(destination);
    EXPECT_EQ(read[0], 1.0);
    EXPECT_EQ(read[1], 1.015625);
    EXPECT_EQ(read[2], -infinity);
    EXPECT_TRUE(std::isnan(read[3]));
    EXPECT_NEAR(read[4], 3.0e38, 2e36);
    EXPECT_TRUE(std::signbit(read[5]));
}

}  // namespace
}  // namespace drover
