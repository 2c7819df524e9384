#include <gtest/gtest.h>

#include "fuzz/checkpoint_input.h"
#include "fuzz/run_corpus.h"

namespace drover {
namespace {

TEST(Corpus, CheckpointStatesParseOrGiveAnError) {
    test::run_corpus("checkpoint", test::accepts_checkpoint);
}

}  // namespace
}  // namespace drover
