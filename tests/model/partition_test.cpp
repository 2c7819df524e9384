#include "model/partition.h"

#include <gtest/gtest.h>

#include "model/flops.h"
#include "model/params.h"
#include "support/errors.h"

namespace drover {
namespace {

ModelConfig with_layers(std::int64_t layers) {
    ModelConfig config;
    config.num_hidden_layers = layers;
    return config;
}

/// Sizes of Llama-3-8B.
ModelConfig llama_3_8b() {
    ModelConfig config = with_layers(32);
    config.vocab_size = 128256;
    config.intermediate_size = 14336;
    config.num_key_value_heads = 8;
    return config;
}

std::vector<std::int64_t> sizes(const ModelConfig& config, int stages, const std::vector<int>& cuts = {}) {
    std::vector<std::int64_t> counts;
    std::int64_t next = 0;
    const std::vector<ModelChunk> chunks = cut_into_stages(config, stages, cuts);
    for (const ModelChunk& chunk : chunks) {
        EXPECT_EQ(chunk.blocks.begin, next);
        EXPECT_EQ(chunk.embeds, &chunk == &chunks.front());
        EXPECT_EQ(chunk.has_head, &chunk == &chunks.back());
        next = chunk.blocks.end();
        counts.push_back(chunk.blocks.count);
    }
    EXPECT_EQ(next, config.num_hidden_layers);
    return counts;
}

double cost(const ModelConfig& config, const ModelChunk& chunk, const StageWork& work) {
    const StageTimes times = stage_times(config, chunk, work);
    return times.forward + times.backward_input + times.backward_weight;
}

double largest_cost(const ModelConfig& config, int stages, const std::vector<int>& cuts,
                    const StageWork& work) {
    double most = 0;
    for (const ModelChunk& chunk : cut_into_stages(config, stages, cuts))
        most = std::max(most, cost(config, chunk, work));
    return most;
}

using Sizes = std::vector<std::int64_t>;

TEST(Partition, TheRemainderGoesToTheLastStages) {
    EXPECT_EQ(sizes(with_layers(8), 4), (Sizes{2, 2, 2, 2}));
    EXPECT_EQ(sizes(with_layers(10), 4), (Sizes{2, 2, 3, 3}));
    EXPECT_EQ(sizes(with_layers(7), 4), (Sizes{1, 2, 2, 2}));
    EXPECT_EQ(sizes(with_layers(80), 16), Sizes(16, 5));
    EXPECT_EQ(sizes(with_layers(5), 1), (Sizes{5}));
    EXPECT_EQ(sizes(with_layers(4), 4), (Sizes{1, 1, 1, 1}));
}

TEST(Partition, CutsNameTheFirstLayers) {
    EXPECT_EQ(sizes(with_layers(16), 4, {3, 7, 12}), (Sizes{3, 4, 5, 4}));
    EXPECT_EQ(sizes(with_layers(2), 2, {1}), (Sizes{1, 1}));
}

TEST(Partition, WhatCannotBe) {
    test::expect_error([] { cut_into_stages(with_layers(6), 8, {}); },
                       {"A pipeline of 8 stages needs as many layers, but the model has 6.",
                        "Make --pipeline_parallel_size times --virtual_pipeline_size at most 6."});
    test::expect_error([] { balanced_cuts(with_layers(6), 8, {}); }, {"8 stages", "the model has 6."});
    test::expect_error(
        [] {
            cut_into_stages(with_layers(8), 4, {2, 4});
        },
        {"--pipeline_cuts 2,4 makes 3 stages, but the pipeline has 4.",
         "Name the first layer of every stage but the first: 3 numbers."});
    test::expect_error(
        [] {
            cut_into_stages(with_layers(8), 3, {4, 4});
        },
        {"--pipeline_cuts 4,4 leaves stage 1 of 3 without layers.", "The numbers must rise, from 1 to 7."});
    test::expect_error([] { cut_into_stages(with_layers(8), 2, {0}); }, {"stage 0 of 2 without layers"});
    test::expect_error([] { cut_into_stages(with_layers(8), 2, {8}); }, {"stage 1 of 2 without layers"});
}

/// Twice the weights that a token meets: the norms' are the only ones without a product.
TEST(Partition, FlopsAreTwoPerWeight) {
    ModelConfig mixtral = with_layers(3);
    mixtral.model_type = "mixtral";
    mixtral.moe.experts = 8;
    for (const ModelConfig& config : {llama_3_8b(), mixtral}) {
        const std::int64_t norms = (2 * config.num_hidden_layers + 1) * config.hidden_size;
        const std::int64_t table = config.vocab_size * config.hidden_size;
        double products = head_flops(config);
        for (int block = 0; block < config.num_hidden_layers; ++block)
            products += block_flops(config, block, 1024).products;
        EXPECT_EQ(products, 2 * static_cast<double>(active_parameter_count(config) - norms - table));
    }
}

TEST(Partition, AWindowMakesAttentionCheaper) {
    ModelConfig config = with_layers(2);
    EXPECT_EQ(block_flops(config, 0, 4096).attention, 4.0 * 4096 * 2048);
    config.sliding_window = 1024;
    config.sliding_layers = {true, false};
    EXPECT_EQ(block_flops(config, 0, 4096).attention, 4.0 * 4096 * 1024 * (1 - 1024.0 / 8192));
    EXPECT_EQ(block_flops(config, 1, 4096).attention, 4.0 * 4096 * 2048);
}

TEST(Partition, RecomputingCostsAForwardPass) {
    const ModelConfig config = with_layers(4);
    const ModelChunk inner{.blocks = {1, 2}, .embeds = false, .has_head = false};
    const StageTimes kept = stage_times(config, inner, {.row_length = 512});
    EXPECT_EQ(kept.backward_input + kept.backward_weight, 2 * kept.forward);
    const StageTimes full = stage_times(config, inner, {.row_length = 512, .recompute = {Recompute::full}});
    EXPECT_EQ(full.backward_input, kept.backward_input + kept.forward);
    EXPECT_EQ(full.forward, kept.forward);
    const StageTimes products =
        stage_times(config, inner, {.row_length = 512, .recompute = {Recompute::selective_attention}});
    EXPECT_EQ(products.backward_input,
              full.backward_input - inner.blocks.count * block_flops(config, 1, 512).attention);
    const StageTimes one = stage_times(config, inner, {.row_length = 512, .recompute = {Recompute::full, 2}});
    EXPECT_EQ(one.backward_input, kept.backward_input + kept.forward / 2);
}

/// Without a head that weighs something, balanced is even, and the later stages are the larger ones.
TEST(Partition, BalancedIsEvenWithoutAHead) {
    for (const int layers : {8, 10, 11, 13, 32})
        for (const int stages : {1, 2, 3, 4, 8}) {
            ModelConfig config = with_layers(layers);
            config.vocab_size = 0;
            EXPECT_EQ(sizes(config, stages, balanced_cuts(config, stages, {.row_length = 512})),
                      sizes(config, stages))
                << layers << " layers, " << stages << " stages";
        }
}

/// The head of Llama-3-8B weighs two blocks.
TEST(Partition, TheHeadWeighsSeveralBlocks) {
    const ModelConfig config = llama_3_8b();
    const StageWork work{.row_length = 8192};
    const double block = cost(config, {.blocks = {1, 1}, .embeds = false, .has_head = false}, work);
    const double head = cost(config, {.blocks = {}, .embeds = false}, work);
    EXPECT_NEAR(head / block, 2.1, 0.1);
    EXPECT_EQ(sizes(config, 4, balanced_cuts(config, 4, work)), (Sizes{8, 9, 9, 6}));
    EXPECT_EQ(sizes(config, 8, balanced_cuts(config, 8, work)), (Sizes{4, 4, 4, 4, 4, 5, 5, 2}));
    for (const int stages : {2, 3, 4, 8, 16})
        EXPECT_LT(largest_cost(config, stages, balanced_cuts(config, stages, work), work),
                  largest_cost(config, stages, {}, work))
            << stages << " stages";
}

/// Every partition of a small model, one after another.
TEST(Partition, NoOtherCutsAreBetter) {
    ModelConfig config = with_layers(9);
    config.hidden_size = 64;
    config.intermediate_size = 128;
    config.head_dim = 16;
    config.num_attention_heads = 4;
    config.num_key_value_heads = 4;
    config.sliding_window = 32;
    config.sliding_layers = {true, true, false, true, true, false, false, false, true};
    for (const std::int64_t vocabulary : {10, 500, 3000}) {
        config.vocab_size = vocabulary;
        const StageWork work{.row_length = 512};
        double least = std::numeric_limits<double>::infinity();
        for (int first = 1; first < 7; ++first)
            for (int second = first + 1; second < 8; ++second)
                for (int third = second + 1; third < 9; ++third)
                    least = std::min(least, largest_cost(config, 4, {first, second, third}, work));
        EXPECT_EQ(largest_cost(config, 4, balanced_cuts(config, 4, work), work), least) << vocabulary;
    }
}

}  // namespace
}  // namespace drover
