#include "data/rows/percent_split.h"

#include <gtest/gtest.h>

namespace drover {
namespace {

TEST(PercentSplit, HalvesGoToTheEvenNeighbour) {
    EXPECT_EQ(percent_boundary(10, 5), 0);  // 0.5
    EXPECT_EQ(percent_boundary(30, 5), 2);  // 1.5
    EXPECT_EQ(percent_boundary(50, 5), 2);  // 2.5
    EXPECT_EQ(percent_boundary(36718, 5), 1836);
    EXPECT_EQ(percent_boundary(7, 100), 7);
    EXPECT_EQ(percent_boundary(0, 5), 0);
}

}  // namespace
}  // namespace drover
