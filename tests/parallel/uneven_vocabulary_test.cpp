#include <gtest/gtest.h>
#include <omp.h>

#include "backend/backend.h"
#include "comm/threads/thread_world.h"
#include "parallel/mesh_cases.h"
#include "train/engine/train_engine.h"

namespace drover {
namespace {

/// With one more row of the vocabulary, 2^25 logits are fewer rows: ranks that hold 16,385 and 16,384 tokens
/// would use chunks of different sizes if each chose for itself.
TEST(UnevenVocabulary, RanksTakeTheSameChunksOfLogits) {
    constexpr std::int64_t tokens = 2048;
    ModelConfig config = test::mesh_models()[0].config;
    config.vocab_size = 32769;
    config.hidden_size = 8;
    config.intermediate_size = 8;
    config.num_hidden_layers = 1;
    config.num_attention_heads = 2;
    config.num_key_value_heads = 2;
    config.head_dim = 4;
    config.max_position_embeddings = tokens;
    const TrainEngineOptions options{
        .model = {.precision = Precision::fp32(), .recompute = {}, .rows = 8, .row_length = tokens / 8},
    };
    std::vector<std::int32_t> ids;
    for (std::int64_t i = 0; i < tokens; ++i)
        ids.push_back(static_cast<std::int32_t>(i * 7919 % config.vocab_size));
    const Batch batch = Batch::full_rows(8, tokens / 8, ids, ids);
    const auto loss_on = [&](const Mesh& mesh) {
        omp_set_num_threads(1);
        const auto backend = make_cpu_backend();
        TrainEngine engine(config, options, *backend, mesh);
        engine.allocate();
        engine.initialize_weights(1);
        return engine.accumulate_gradients({&batch, 1}).loss;
    };
    const double alone = loss_on(Mesh());
    run_as_threads(2, {.deadline = std::chrono::seconds(20)},
                   [&](World& world) { EXPECT_NEAR(loss_on(Mesh(world, {.tp = 2})), alone, 1e-5 * alone); });
}

}  // namespace
}  // namespace drover
