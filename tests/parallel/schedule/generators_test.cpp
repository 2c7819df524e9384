#include "parallel/schedule/generators.h"

#include <gtest/gtest.h>

#include "parallel/schedule/csv.h"
#include "support/errors.h"

namespace drover {
namespace {

TEST(Generators, OneForwardOneBackward) {
    EXPECT_EQ(to_csv(one_forward_one_backward(3, 4)),
              "0F0,0F1,0F2,0B0,0F3,0B1,0B2,0B3\r\n"
              "1F0,1F1,1B0,1F2,1B1,1F3,1B2,1B3\r\n"
              "2F0,2B0,2F1,2B1,2F2,2B2,2F3,2B3\r\n");
    // Fewer micro-batches than ranks.
    EXPECT_EQ(to_csv(one_forward_one_backward(3, 1)), "0F0,0B0\r\n1F0,1B0\r\n2F0,2B0\r\n");
}

TEST(Generators, InterleavedTakesTurnsWithItsChunks) {
    EXPECT_EQ(to_csv(interleaved(2, 2, 4)),
              "0F0,0F1,2F0,2F1,0F2,2B0,0F3,2B1,2F2,0B0,2F3,0B1,2B2,2B3,0B2,0B3\r\n"
              "1F0,1F1,3F0,3B0,3F1,3B1,1F2,1B0,1F3,1B1,3F2,3B2,3F3,3B3,1B2,1B3\r\n");
}

TEST(Generators, ZeroBubbleDelaysTheWeightGradientsOfLaterRanks) {
    EXPECT_EQ(to_csv(zero_bubble(3, 1, 4)),
              "0F0,0F1,0F2,0I0,0W0,0F3,0I1,0W1,0I2,0W2,0I3,0W3\r\n"
              "1F0,1F1,1I0,1F2,1I1,1W0,1F3,1I2,1W1,1I3,1W2,1W3\r\n"
              "2F0,2I0,2F1,2I1,2F2,2I2,2W0,2F3,2I3,2W1,2W2,2W3\r\n");
    // A delay of more than all its micro-batches.
    EXPECT_EQ(to_csv(zero_bubble(3, 1, 1)), "0F0,0I0,0W0\r\n1F0,1I0,1W0\r\n2F0,2I0,2W0\r\n");
}

TEST(Generators, ForwardOnlyTakesAnyNumberOfMicroBatches) {
    EXPECT_EQ(to_csv(forward_only(2, 1, 3)), "0F0,0F1,0F2\r\n1F0,1F1,1F2\r\n");
    EXPECT_EQ(to_csv(forward_only(2, 2, 3)), "0F0,0F1,2F0,2F1,0F2,2F2\r\n1F0,1F1,3F0,3F1,1F2,3F2\r\n");
}

TEST(Generators, NumbersThatDoNotWorkAreRefusedWithThoseThatDo) {
    test::expect_error([] { interleaved(4, 2, 10); }, {"4 ranks", "10 micro-batches", "Use 8 or 12"});
    test::expect_error([] { zero_bubble(4, 2, 3); }, {"4 ranks", "3 micro-batches", "Use 4 micro-batches"});
    test::expect_error([] { one_forward_one_backward(0, 3); }, {"0 ranks", "at least one"});
    test::expect_error([] { forward_only(2, 1, 0); }, {"0 micro-batches"});
    test::expect_error([] { zero_bubble(2, 0, 2); }, {"0 chunks"});
    EXPECT_NO_THROW(zero_bubble(4, 1, 3));
}

}  // namespace
}  // namespace drover
