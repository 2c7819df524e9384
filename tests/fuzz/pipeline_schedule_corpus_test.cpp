#include <gtest/gtest.h>

#include "fuzz/pipeline_schedule_input.h"
#include "fuzz/run_corpus.h"

namespace drover {
namespace {

TEST(Corpus, PipelineSchedulesRunOrGiveAnError) {
    test::run_corpus("pipeline_schedule", test::accepts_pipeline_schedule);
}

}  // namespace
}  // namespace drover
