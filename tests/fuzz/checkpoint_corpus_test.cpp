#include <gtest/gtest.h>

#include "fuzz/checkpoint_input.h"
#include "fuzz/run_corpus.h"
#include "fuzz/trainer_state_input.h"

namespace drover {
namespace {

TEST(Corpus, CheckpointStatesParseOrGiveAnError) {
    test::run_corpus("checkpoint", test::accepts_checkpoint);
}

TEST(Corpus, TrainerStatesParseOrGiveAnError) {
    test::run_corpus("trainer_state", test::accepts_trainer_state);
}

}  // namespace
}  // namespace drover
