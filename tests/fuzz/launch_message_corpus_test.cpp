#include <gtest/gtest.h>

#include "fuzz/launch_message_input.h"
#include "fuzz/run_corpus.h"

namespace drover {
namespace {

TEST(Corpus, LaunchMessagesParseOrGiveAnError) {
    test::run_corpus("launch_message", test::accepts_launch_messages);
}

}  // namespace
}  // namespace drover
