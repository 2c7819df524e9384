#include "core/number_text.h"

#include <gtest/gtest.h>

namespace drover {
namespace {

TEST(NumberText, OneIsNotSeveral) {
    EXPECT_EQ(counted(1, "epoch"), "1 epoch");
    EXPECT_EQ(counted(2, "epoch"), "2 epochs");
    EXPECT_EQ(counted(0, "epoch"), "0 epochs");
    EXPECT_EQ(counted(1, "process", "processes"), "1 process");
    EXPECT_EQ(counted(3, "process", "processes"), "3 processes");
}

TEST(NumberText, BytesHaveUnits) {
    EXPECT_EQ(bytes_text(17), "17 bytes");
    EXPECT_EQ(bytes_text(1536), "1.50 KiB");
    EXPECT_EQ(bytes_text(std::size_t{3} << 30), "3.00 GiB");
}

TEST(NumberText, ThousandsAreSeparated) {
    EXPECT_EQ(with_thousands(0), "0");
    EXPECT_EQ(with_thousands(999), "999");
    EXPECT_EQ(with_thousands(1234567), "1,234,567");
    EXPECT_EQ(with_thousands(-100000), "-100,000");
}

}  // namespace
}  // namespace drover
