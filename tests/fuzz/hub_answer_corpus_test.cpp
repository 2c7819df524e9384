#include <gtest/gtest.h>

#include "fuzz/hub_answer_input.h"
#include "fuzz/run_corpus.h"

namespace drover {
namespace {

TEST(Corpus, HubAnswersParseOrGiveAnError) {
    test::run_corpus("hub_answer", test::accepts_hub_answer);
}

}  // namespace
}  // namespace drover
