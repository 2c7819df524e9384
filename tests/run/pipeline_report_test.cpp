#include "run/pipeline_report.h"

#include <gtest/gtest.h>

#include "model/config.h"
#include "train/engine/train_engine_options.h"

namespace drover {
namespace {

/// A model whose embedding and head weigh nothing, and options for it.
struct Planned {
    ModelConfig config;
    TrainEngineOptions options;
    MeshShape mesh;

    Planned(int ranks, int chunks, int micro_batches, int layers = 8) : mesh{.pp = ranks} {
        config.num_hidden_layers = layers;
        config.vocab_size = 1;
        options.model.row_length = 128;
        options.pipeline.chunks = chunks;
        options.pipeline.micro_batches = micro_batches;
    }
    PlannedPipeline pipeline() const { return {config, options, mesh}; }
};

std::vector<RankMemory> memory_of(const std::vector<std::size_t>& gibibytes) {
    std::vector<RankMemory> memory;
    for (const std::size_t size : gibibytes) {
        RankMemory& rank = memory.emplace_back();
        rank.device.total = size << 30;
    }
    return memory;
}

TEST(PipelineReport, TableOfRanks) {
    EXPECT_EQ(pipeline_table(Planned(4, 1, 8, 10).pipeline(), memory_of({4, 3, 2, 1}), true),
              "Pipeline of 4 ranks, 1F1B, 8 micro-batches per update:\n"
              "  rank  layers          slots        memory\n"
              "     0  embedding, 0-1      4      4.00 GiB\n"
              "     1  2-3                 3      3.00 GiB\n"
              "     2  4-6                 2      2.00 GiB\n"
              "     3  7-9, head           1      1.00 GiB");
}

TEST(PipelineReport, TableOfSeveralStagesPerRank) {
    EXPECT_EQ(pipeline_table(Planned(2, 2, 4, 5).pipeline(), memory_of({2, 1}), true),
              "Pipeline of 2 ranks, interleaved 1F1B, 4 micro-batches per update:\n"
              "  rank  layers           slots        memory\n"
              "     0  embedding, 0; 2      6      2.00 GiB\n"
              "     1  1; 3-4, head         4      1.00 GiB");
}

TEST(PipelineReport, TableOfAnEvaluation) {
    EXPECT_EQ(pipeline_table(Planned(2, 1, 1, 4).pipeline(), memory_of({2, 1}), false),
              "Pipeline of 2 ranks:\n"
              "  rank  layers                memory\n"
              "     0  embedding, 0-1      2.00 GiB\n"
              "     1  2-3, head           1.00 GiB");
}

/// (P − 1) / (M + P − 1) of equal stages.
TEST(PipelineReport, Bubble) {
    EXPECT_NEAR(bubble_fraction(Planned(4, 1, 8).pipeline()), 3.0 / 11, 1e-4);
    EXPECT_EQ(bubble_text(Planned(4, 1, 8).pipeline(), false),
              "Counting floating-point operations, the ranks are idle 27 % of the time (bubble) with 8 "
              "micro-batches; 16 would give 16 %.");
    // A multiple of the ranks.
    EXPECT_NE(bubble_text(Planned(4, 2, 9).pipeline(), false).find("; 20 would give"), std::string::npos);
    EXPECT_EQ(bubble_text(Planned(2, 1, 1 << 30).pipeline(), false),
              "Counting floating-point operations, the ranks are idle at most 0 % of the time (bubble) with "
              "1073741824 micro-batches.");
}

TEST(PipelineReport, BalancedCutsAreRecommendedWhereTheyHelp) {
    Planned heavy_head(4, 1, 16, 32);
    heavy_head.config.vocab_size = 128256;
    EXPECT_NE(bubble_text(heavy_head.pipeline(), false).find("--pipeline_cuts balanced would give"),
              std::string::npos);
    EXPECT_EQ(bubble_text(heavy_head.pipeline(), true).find("--pipeline_cuts"), std::string::npos);
    EXPECT_EQ(bubble_text(Planned(4, 1, 8).pipeline(), false).find("--pipeline_cuts"), std::string::npos);
}

TEST(PipelineReport, UnevenTurns) {
    EXPECT_EQ(uneven_turns_text(Planned(4, 2, 8).pipeline()), "");
    EXPECT_EQ(uneven_turns_text(Planned(4, 1, 7).pipeline()), "");
    EXPECT_EQ(uneven_turns_text(Planned(4, 2, 7).pipeline()),
              "With several stages per rank, micro-batches take turns of 4: 7 are run in the order of 8, in "
              "which ranks are idle where micro-batches are missing.");
    EXPECT_GT(bubble_fraction(Planned(4, 2, 7).pipeline()), bubble_fraction(Planned(4, 2, 8).pipeline()));
}

TEST(PipelineReport, ZeroBubbleWithWholeBackwards) {
    Planned planned(4, 1, 8);
    planned.options.model.recompute = {Recompute::full};
    EXPECT_EQ(whole_backwards_text(planned.pipeline()), "") << "1F1B has no others";
    planned.options.pipeline.schedule = PipelineScheduleKind::zero_bubble;
    EXPECT_EQ(whole_backwards_text(planned.pipeline()),
              "--pipeline_schedule zero_bubble: weight gradients are computed at once and fill no bubble, "
              "because what is recomputed is not kept (--recompute).");
    const double whole = bubble_fraction(planned.pipeline());
    planned.options.model.recompute = {};
    for (const Sharding sharding : {Sharding::replicated, Sharding::zero1}) {
        planned.options.sharding = sharding;
        EXPECT_EQ(whole_backwards_text(planned.pipeline()), "");
    }
    EXPECT_LT(bubble_fraction(planned.pipeline()), whole);
    for (const Sharding sharding : {Sharding::zero2, Sharding::zero3}) {
        planned.options.sharding = sharding;
        planned.mesh.data = 1;
        EXPECT_EQ(whole_backwards_text(planned.pipeline()), "") << "nothing is sharded";
        planned.mesh.data = 2;
        EXPECT_NE(whole_backwards_text(planned.pipeline()).find("because ZeRO-2 and ZeRO-3 reduce"),
                  std::string::npos);
    }
}

TEST(PipelineReport, TheLargestRank) {
    EXPECT_EQ(largest_rank(memory_of({1, 3, 2})), 1);
    EXPECT_EQ(largest_rank(memory_of({5})), 0);
}

}  // namespace
}  // namespace drover
