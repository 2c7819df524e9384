#include "parallel/schedule/action.h"

#include <gtest/gtest.h>

#include <utility>

namespace drover {
namespace {

using Kind = PipelineActionKind;

TEST(PipelineAction, IsWrittenAndReadAsPyTorchDoes) {
    const std::pair<const char*, PipelineAction> cases[] = {
        {"2F0", {Kind::forward, 2, 0}},
        {"0B13", {Kind::backward, 0, 13}},
        {"7I1", {Kind::backward_input, 7, 1}},
        {"7W1", {Kind::backward_weight, 7, 1}},
        {"3SEND_F1", {Kind::send_activations, 3, 1}},
        {"4RECV_F1", {Kind::receive_activations, 4, 1}},
        {"3SEND_B1", {Kind::send_gradients, 3, 1}},
        {"2RECV_B1", {Kind::receive_gradients, 2, 1}},
        {"3WAIT_SEND_F1", {Kind::wait_for_sent_activations, 3, 1}},
        {"3WAIT_SEND_B1", {Kind::wait_for_sent_gradients, 3, 1}},
        {"1UNSHARD", {Kind::gather, 1}},
        {"1RESHARD", {Kind::release, 1}},
        {"12REDUCE_GRAD", {Kind::reduce_gradients, 12}},
        {"12WAIT_REDUCE_GRAD", {Kind::wait_for_reduction, 12}},
    };
    for (const auto& [text, action] : cases) {
        EXPECT_EQ(to_text(action), text);
        EXPECT_EQ(parse_pipeline_action(text), action) << text;
    }
}

TEST(PipelineAction, OtherTextIsNone) {
    for (const char* text : {"", "F0", "2F", "2", "2F0 ", " 2F0", "2F-1", "-2F0", "2FF0", "2f0", "2SEND0",
                             "2UNSHARD0", "2F0F1", "12345678F0", "2F12345678", "2OVERLAP_F_B", "2F+1"})
        EXPECT_EQ(parse_pipeline_action(text), std::nullopt) << text;
    EXPECT_EQ(parse_pipeline_action("1234567F7654321"), (PipelineAction{Kind::forward, 1234567, 7654321}));
}

TEST(PipelineAction, KindsAreComputationsOrTransfersOrNeither) {
    EXPECT_TRUE(is_computation(Kind::forward) && is_computation(Kind::backward_weight));
    EXPECT_FALSE(is_computation(Kind::send_activations) || is_computation(Kind::reduce_gradients));
    EXPECT_TRUE(is_transfer(Kind::send_activations) && is_transfer(Kind::receive_gradients));
    EXPECT_FALSE(is_transfer(Kind::backward_weight) || is_transfer(Kind::wait_for_sent_activations));
}

}  // namespace
}  // namespace drover
