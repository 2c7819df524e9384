#include "train/engine/memory_advice.h"

#include <gtest/gtest.h>

#include "support/test_backend.h"
#include "train/engine/train_engine.h"

namespace drover {
namespace {

class MemoryAdvice : public testing::Test {
  protected:
    static ModelConfig config() {
        return ModelConfig::parse(
            R"({"model_type": "llama", "hidden_size": 64, "intermediate_size": 256, "num_hidden_layers": 6,
                "num_attention_heads": 4, "vocab_size": 96})",
            "config.json");
    }
    static TrainEngineOptions options() {
        TrainEngineOptions result;
        result.model.rows = 12;
        result.model.row_length = 128;
        return result;
    }
    std::size_t needed(const TrainEngineOptions& asked) {
        return TrainEngine(config(), asked, *backend_, mesh_).memory_plan().total;
    }
    std::string advice(const TrainEngineOptions& asked, std::size_t available) {
        return memory_advice(config(), asked, 3, *backend_, mesh_,
                             {.device_bytes = available, .host_bytes = host_bytes_});
    }

    std::unique_ptr<Backend> backend_ = test::make_test_backend();
    const Mesh mesh_;
    std::size_t host_bytes_ = 0;
};

TEST_F(MemoryAdvice, OffersTheHostsMemoryWhereItIsAnother) {
    TrainEngineOptions offloaded = options();
    offloaded.offload_optimizer = true;
    host_bytes_ = TrainEngine(config(), offloaded, *backend_, mesh_).host_memory_plan().total;
    const bool has_two_memories = backend_->device() != Device::cpu;
    const auto mentioned = [&] {
        return advice(options(), needed(offloaded)).find("full_shard offload") != std::string::npos;
    };
    EXPECT_EQ(mentioned(), has_two_memories);
    --host_bytes_;
    EXPECT_FALSE(mentioned());
}

TEST_F(MemoryAdvice, FindsTheLargestBatch) {
    const auto largest = [&](std::size_t available) {
        return largest_fitting_rows(config(), options(), *backend_, mesh_, {.device_bytes = available});
    };
    for (const std::int64_t rows : {1, 5, 7, 12}) {
        TrainEngineOptions fewer = options();
        fewer.model.rows = rows;
        EXPECT_EQ(largest(needed(fewer)), rows);
        EXPECT_EQ(largest(needed(fewer) - 1), rows - 1);
    }
    EXPECT_EQ(largest(2 * needed(options())), 12) << "never more than was asked for";
}

TEST_F(MemoryAdvice, NamesTheSmallestChangeOfEachKind) {
    TrainEngineOptions selective = options(), half = options();
    selective.model.recompute = {Recompute::selective};
    half.model.rows = 6;
    const std::size_t available = std::max(needed(selective), needed(half));
    ASSERT_LT(available, needed(options()));
    const std::string text = advice(options(), available);
    EXPECT_NE(text.find("--recompute selective"), std::string::npos) << text;
    EXPECT_EQ(text.find("--recompute selective_mlp"), std::string::npos) << text;
    EXPECT_NE(text.find("--per_device_train_batch_size 6 --gradient_accumulation_steps 6"), std::string::npos)
        << text;
}

TEST_F(MemoryAdvice, OffersToKeepAttentionBeforeFullRecompute) {
    TrainEngineOptions kept = options(), more = options();
    kept.model.recompute = {Recompute::selective_attention};
    more.model.recompute = {Recompute::selective_mlp};
    ASSERT_LT(needed(kept), needed(more));
    EXPECT_NE(advice(options(), needed(kept)).find("--recompute selective_attention"), std::string::npos);
    EXPECT_NE(advice(options(), needed(kept) - 1).find("--recompute full"), std::string::npos);
    EXPECT_NE(advice(kept, needed(kept) - 1).find("--recompute full"), std::string::npos);
}

TEST_F(MemoryAdvice, OffersOnlyWhatFits) {
    TrainEngineOptions full = options();
    full.model.recompute = {Recompute::full};
    TrainEngineOptions third = options();
    third.model.rows = 4;
    ASSERT_LT(needed(full), needed(third));
    const std::string text = advice(options(), needed(full));
    EXPECT_NE(text.find("--recompute full"), std::string::npos) << text;
    EXPECT_EQ(text.find("--per_device_train_batch_size 4"), std::string::npos) << text;
}

TEST_F(MemoryAdvice, CombinesWhenOneChangeIsNotEnough) {
    TrainEngineOptions smallest = options();
    smallest.model.recompute = {Recompute::full};
    smallest.model.rows = 1;
    const std::string text = advice(options(), needed(smallest));
    EXPECT_NE(
        text.find("--recompute full and --per_device_train_batch_size 1 --gradient_accumulation_steps 36"),
        std::string::npos)
        << text;
}

/// A smaller batch comes with more of them in an update, and then gradients have memory of their own.
TEST_F(MemoryAdvice, PlansASmallerBatchForMoreMicroBatches) {
    TrainEngineOptions asked = options(), one = options(), several = options();
    asked.pipeline.micro_batches = one.pipeline.micro_batches = 1;
    one.model.rows = several.model.rows = 6;
    several.pipeline.micro_batches = 2;
    ASSERT_LT(needed(one), needed(several));
    const auto mentioned = [&](std::size_t available) {
        return advice(asked, available).find("--per_device_train_batch_size 6 ") != std::string::npos;
    };
    EXPECT_TRUE(mentioned(needed(several)));
    EXPECT_FALSE(mentioned(needed(several) - 1));
}

TEST_F(MemoryAdvice, CombinesOnlyWhatFitsTogether) {
    TrainEngineOptions asked = options(), smallest = options();
    asked.pipeline.micro_batches = 1;
    smallest.model.recompute = {Recompute::full};
    smallest.model.rows = 1;
    const std::string both =
        "--recompute full and --per_device_train_batch_size 1 --gradient_accumulation_steps 36";
    EXPECT_NE(advice(asked, needed(smallest)).find(both), std::string::npos);
    const std::string less = advice(asked, needed(smallest) - 1);
    EXPECT_NE(less.find("Even one row with --recompute full needs"), std::string::npos) << less;
}

/// The search used to try every number below a batch of this size.
TEST_F(MemoryAdvice, FindsDivisorsOfAnyBatch) {
    TrainEngineOptions huge = options(), few = options();
    huge.model.row_length = few.model.row_length = 8;
    few.model.rows = 7;
    huge.model.rows = 2147483647;  // a prime
    EXPECT_NE(advice(huge, needed(few))
                  .find("--per_device_train_batch_size 1 --gradient_accumulation_steps "
                        "6442450941"),
              std::string::npos);
    huge.model.rows = 2147483640;
    EXPECT_NE(advice(huge, needed(few))
                  .find("--per_device_train_batch_size 6 --gradient_accumulation_steps "
                        "1073741820"),
              std::string::npos)
        << advice(huge, needed(few));
}

TEST_F(MemoryAdvice, SaysOverHowManyDevicesToShard) {
    TrainEngineOptions smallest = options();
    smallest.model.recompute = {Recompute::full};
    smallest.model.rows = 1;
    const MemoryPlan plan = TrainEngine(config(), smallest, *backend_, mesh_).memory_plan();
    const std::size_t states =
        plan[MemoryUse::parameters] + plan[MemoryUse::gradients] + plan[MemoryUse::moments];
    const std::string text = advice(options(), plan.total - states / 2);
    EXPECT_NE(text.find("over 2 devices or more (--fsdp full_shard)"), std::string::npos) << text;
    EXPECT_NE(advice(options(), 1000).find("smaller --block_size"), std::string::npos);
}

}  // namespace
}  // namespace drover
