#include "core/counted.h"

#include <gtest/gtest.h>

namespace drover {
namespace {

TEST(Counted, OneIsNotSeveral) {
    EXPECT_EQ(counted(1, "epoch"), "1 epoch");
    EXPECT_EQ(counted(2, "epoch"), "2 epochs");
    EXPECT_EQ(counted(0, "epoch"), "0 epochs");
    EXPECT_EQ(counted(1, "process", "processes"), "1 process");
    EXPECT_EQ(counted(3, "process", "processes"), "3 processes");
}

}  // namespace
}  // namespace drover
