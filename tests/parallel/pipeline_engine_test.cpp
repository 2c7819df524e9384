#include <fmt/format.h>
#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <mutex>
#include <set>

#include "backend/backend.h"
#include "comm/threads/thread_world.h"
#include "model/block_shape.h"
#include "parallel/mesh_cases.h"
#include "support/golden.h"
#include "train/engine/train_engine.h"
#include "train/engine/whole_weights.h"

// What an engine on a pipeline finds, evaluates, skips and hands out.

namespace drover {
namespace {

constexpr std::int64_t pipeline_row_length = 8;
using Kind = PipelineScheduleKind;

std::vector<test::MeshCase> pipeline_cases() {
    return {
        {.shape = {.pp = 2}},
        {.shape = {.pp = 4}, .schedule = Kind::zero_bubble},
        {.shape = {.pp = 2}, .chunks = 2},
        {.shape = {.pp = 2, .tp = 2}, .sequence_parallel = true, .schedule = Kind::zero_bubble, .chunks = 2},
        {.shape = {.pp = 2, .data = 2}, .sharding = Sharding::zero3},
    };
}

TrainEngineOptions pipeline_options(const test::MeshCase& mesh_case) {
    return {.model = {.precision = mesh_case.precision,
                      .recompute = {},
                      .rows = 1,
                      .row_length = pipeline_row_length},
            .max_gradient_norm = 1.0,
            .compat = {},
            .sharding = mesh_case.sharding,
            .pipeline = {.schedule = mesh_case.schedule, .chunks = mesh_case.chunks, .micro_batches = 4},
            .sequence_parallel = mesh_case.sequence_parallel,
            .skip_non_finite = true};
}

Batch pipeline_rows(std::int64_t first, std::int64_t count, std::int64_t vocab) {
    return test::numbered_rows(first, count, pipeline_row_length, vocab);
}

/// Calls body(engine, backend, mesh) on every rank, with the weights of one seed.
template <class Body>
void on_pipeline(const test::MeshModel& model, const test::MeshCase& mesh_case,
                 const TrainEngineOptions& options, const Body& body) {
    const auto on_rank = [&](const Mesh& mesh) {
        omp_set_num_threads(1);
        const auto backend = make_cpu_backend();
        TrainEngine engine(model.config, options, *backend, mesh);
        engine.allocate();
        engine.initialize_weights(1);
        body(engine, *backend, mesh);
    };
    if (mesh_case.shape.ranks() == 1) return on_rank(Mesh());
    run_as_threads(mesh_case.shape.ranks(), {}, [&](World& world) {
        on_rank(Mesh(world, mesh_case.shape, key_value_copies(model.config, mesh_case.shape.tp)));
    });
}

// -----------------------------------------------------------------------------------------------------
// numbers that are not finite

/// Whole leaves, and the value that they get everywhere.
using Poison = std::map<std::string, float>;

/// What the ranks name after a step of four micro-batches.
std::set<std::string> named_with(const test::MeshModel& model, const test::MeshCase& mesh_case,
                                 const Poison& poison) {
    std::mutex guard;
    std::set<std::string> named;
    on_pipeline(
        model, mesh_case, pipeline_options(mesh_case), [&](TrainEngine& engine, Backend&, const Mesh& mesh) {
            for (const OwnedLeaf& leaf : engine.store().owned())
                if (const auto found = poison.find(leaf.spec->name); found != poison.end())
                    std::fill_n(leaf.param.data<float>(), leaf.param.numel(), found->second);
            const auto before = test::whole_leaves(engine.model_spec(), engine.store(), mesh);
            std::vector<Batch> batches;
            for (int i = 0; i < 4; ++i)
                batches.push_back(pipeline_rows(mesh.replicas().size() * i + mesh.replicas().rank(), 1,
                                                model.config.vocab_size));
            const UpdateResult result = engine.step(batches, 1e-3);
            const auto after = test::whole_leaves(engine.model_spec(), engine.store(), mesh);
            // As bits: a NaN differs from itself.
            bool same = !result.updated && engine.updates_done() == 0;
            for (std::size_t i = 0; i < before.size(); ++i)
                same = same && std::memcmp(before[i].data(), after[i].data(), before[i].size() * 8) == 0;
            const std::lock_guard lock(guard);
            EXPECT_TRUE(same) << mesh_case.text();
            named.insert(result.non_finite.value_or("nothing"));
        });
    return named;
}

TEST(NonFiniteOnAPipeline, IsNamedAsOnOneProcess) {
    const float nan = std::nanf(""), huge = 3e38f;
    const std::vector<Poison> weights{
        {{"model.embed_tokens.weight", nan}},
        {{"model.layers.0.self_attn.q_proj.weight", nan}},
        {{"model.layers.2.mlp.up_proj.weight", nan}},
        {{"model.layers.4.input_layernorm.weight", nan}, {"model.layers.1.mlp.down_proj.weight", nan}},
        {{"model.norm.weight", nan}},
    };
    const std::vector<Poison> activations{
        {{"model.layers.0.self_attn.v_proj.weight", 1e20f}, {"model.layers.0.self_attn.o_proj.weight", huge}},
        {{"model.layers.3.mlp.up_proj.weight", 1e20f}, {"model.layers.3.mlp.down_proj.weight", huge}},
        {{"model.norm.weight", huge}},
    };
    // Forward adds nothing there, and the gradient overflows.
    const auto gradients_of = [&](int layer) {
        const std::string mlp = fmt::format("model.layers.{}.mlp.", layer);
        return Poison{{mlp + "gate_proj.weight", 0.0f},
                      {mlp + "gate_proj.bias", 0.0f},
                      {mlp + "down_proj.bias", 0.0f},
                      {mlp + "up_proj.weight", 1e10f},
                      {mlp + "down_proj.weight", huge}};
    };
    std::vector<std::pair<std::string, Poison>> poisons;
    for (const Poison& poison : weights) poisons.emplace_back("the weight ", poison);
    for (const Poison& poison : activations) poisons.emplace_back("the ", poison);
    for (const int layer : {0, 2, 4}) poisons.emplace_back("the gradient of ", gradients_of(layer));

    for (const test::MeshModel& model : test::pipeline_models(5)) {
        if (model.name != "grouped-query" && model.name != "tied") continue;
        for (const auto& [what, poison] : poisons) {
            const bool is_of_ends = poison.contains("model.embed_tokens.weight") ||
                                    poison.contains("model.layers.4.mlp.down_proj.weight");
            if (model.name == "tied" && !is_of_ends) continue;
            const std::set<std::string> alone = named_with(model, {}, poison);
            ASSERT_EQ(alone.size(), 1u);
            EXPECT_EQ(alone.begin()->find(what), 0u) << *alone.begin();
            for (const test::MeshCase& mesh_case : pipeline_cases())
                EXPECT_EQ(named_with(model, mesh_case, poison), alone)
                    << model.name << ", " << mesh_case.text();
        }
    }
}

// -----------------------------------------------------------------------------------------------------
// the loss scale

/// Every rank finds the same scale, skips the same steps, and then trains as one process does.
TEST(LossScaleOnAPipeline, MovesAsOnOneProcess) {
    const test::MeshModel model = test::pipeline_models(5)[2];
    const auto scales = [&](const test::MeshCase& mesh_case) {
        TrainEngineOptions options = pipeline_options(mesh_case);
        options.loss_scaling =
            LossScaling{.initial = std::numeric_limits<float>::max(), .growth_interval = 3};
        std::mutex guard;
        std::set<std::vector<float>> found;
        on_pipeline(model, mesh_case, options, [&](TrainEngine& engine, Backend&, const Mesh& mesh) {
            // A steep head: the scaled gradient through it is too large for fp32.
            for (const OwnedLeaf& leaf : engine.store().owned())
                if (leaf.spec->name == "lm_head.weight")
                    for (std::int64_t i = 0; i < leaf.param.numel(); ++i) leaf.param.data<float>()[i] *= 1000;
            const std::vector<Batch> batches(
                2, pipeline_rows(mesh.replicas().rank(), 1, model.config.vocab_size));
            std::vector<float> moves;
            int updates = 0;
            while (updates < 5 && moves.size() < 100) {
                updates += engine.step(batches, 1e-3).updated;
                moves.push_back(engine.loss_scaler()->scale());
            }
            const std::lock_guard lock(guard);
            EXPECT_EQ(updates, 5);
            EXPECT_GT(moves.size(), 6u) << "no step was skipped";
            found.insert(moves);
        });
        return found;
    };
    for (const test::MeshCase& mesh_case : pipeline_cases()) {
        const std::set<std::vector<float>> alone =
            scales(test::MeshCase{.shape = {.data = mesh_case.shape.data}});
        ASSERT_EQ(alone.size(), 1u);
        EXPECT_EQ(scales(mesh_case), alone) << mesh_case.text();
    }
}

// -----------------------------------------------------------------------------------------------------
// evaluation

/// One to nine pieces of a row, up to more than are evaluated at once. The head computes what it does on one
/// process, and adds it up in the same order.
TEST(EvaluationOnAPipeline, HasTheBitsOfOneProcess) {
    for (const test::MeshModel& model : test::pipeline_models(5)) {
        if (model.name != "mixtral" && model.name != "tied") continue;
        std::map<std::int64_t, EvaluationResult> alone;  // by pieces
        on_pipeline(model, {}, pipeline_options({}), [&](TrainEngine& engine, Backend&, const Mesh&) {
            for (std::int64_t pieces = 1; pieces <= 9; ++pieces)
                alone[pieces] = engine.evaluate(pipeline_rows(pieces, pieces, model.config.vocab_size));
        });
        for (const test::MeshCase& mesh_case : pipeline_cases()) {
            if (mesh_case.shape.tp > 1 || mesh_case.shape.data > 1) continue;
            on_pipeline(
                model, mesh_case, pipeline_options(mesh_case),
                [&](TrainEngine& engine, Backend&, const Mesh&) {
                    for (std::int64_t pieces = 1; pieces <= 9; ++pieces) {
                        const EvaluationResult result =
                            engine.evaluate(pipeline_rows(pieces, pieces, model.config.vocab_size));
                        const EvaluationResult& expected = alone[pieces];
                        EXPECT_EQ(result.loss_sum, expected.loss_sum) << pieces << ", " << mesh_case.text();
                        EXPECT_EQ(result.correct, expected.correct) << pieces << ", " << mesh_case.text();
                        EXPECT_EQ(result.targets, expected.targets) << pieces << ", " << mesh_case.text();
                        EXPECT_EQ(result.denominator, expected.denominator);
                        EXPECT_NEAR(result.balance_loss, expected.balance_loss, 1e-12)
                            << pieces << ", " << mesh_case.text();
                        EXPECT_EQ(result.balance_loss > 0, model.name == "mixtral");
                    }
                });
        }
    }
}

/// An engine that cannot train.
TEST(EvaluationOnAPipeline, NeedsNoGradients) {
    const test::MeshModel model = test::pipeline_models(5)[1];
    const Batch batch = pipeline_rows(0, 6, model.config.vocab_size);
    const auto results = [&](const test::MeshCase& mesh_case) {
        TrainEngineOptions options = pipeline_options(mesh_case);
        options.evaluation_only = true;
        std::mutex guard;
        std::set<std::pair<double, std::int64_t>> found;
        on_pipeline(model, mesh_case, options, [&](TrainEngine& engine, Backend&, const Mesh&) {
            EXPECT_EQ(engine.memory_plan()[MemoryUse::gradients], 0u);
            EXPECT_EQ(engine.memory_plan()[MemoryUse::waiting_gradients], 0u) << mesh_case.text();
            const EvaluationResult result = engine.evaluate(batch);
            const std::lock_guard lock(guard);
            found.emplace(result.loss_sum, result.correct);
        });
        return found;
    };
    const auto alone = results({});
    for (const test::MeshCase& mesh_case : pipeline_cases()) {
        if (mesh_case.shape.tp > 1 || mesh_case.sharding != Sharding::replicated) continue;
        EXPECT_EQ(results(mesh_case), alone) << mesh_case.text();
    }
}

/// Replicas, of which the last has no rows.
TEST(EvaluationOnAPipeline, SumsUpReplicas) {
    const test::MeshModel model = test::pipeline_models(5)[2];
    for (const test::MeshCase& mesh_case : pipeline_cases()) {
        EvaluationResult alone;
        on_pipeline(model, {}, pipeline_options({}), [&](TrainEngine& engine, Backend&, const Mesh&) {
            alone = engine.evaluate(pipeline_rows(0, 1, model.config.vocab_size));
        });
        on_pipeline(model, mesh_case, pipeline_options(mesh_case),
                    [&](TrainEngine& engine, Backend&, const Mesh& mesh) {
                        const bool has_rows = mesh.replicas().rank() == 0;
                        const EvaluationResult result =
                            engine.evaluate(pipeline_rows(0, has_rows ? 1 : 0, model.config.vocab_size));
                        std::vector<double> sums{result.loss_sum, static_cast<double>(result.correct)};
                        mesh.replicas().all_reduce({}, Tensor::of(sums.data(), {2}), Reduction::sum);
                        EXPECT_NEAR(sums[0], alone.loss_sum, 1e-5 * alone.loss_sum) << mesh_case.text();
                        EXPECT_EQ(sums[1], alone.correct) << mesh_case.text();
                        EXPECT_NEAR(result.balance_loss, alone.balance_loss, 1e-6) << mesh_case.text();
                    });
    }
}

/// Slots and buffers of messages are left as training needs them.
TEST(EvaluationOnAPipeline, LeavesTrainingAsItWas) {
    const test::MeshModel model = test::pipeline_models(5)[2];
    for (const test::MeshCase& mesh_case : pipeline_cases()) {
        std::mutex guard;
        std::set<std::vector<double>> results;
        for (const bool evaluates : {false, true})
            on_pipeline(model, mesh_case, pipeline_options(mesh_case),
                        [&](TrainEngine& engine, Backend&, const Mesh& mesh) {
                            std::vector<double> own;
                            for (int step = 0; step < 3; ++step) {
                                std::vector<Batch> batches;
                                for (int i = 0; i < 4; ++i)
                                    batches.push_back(pipeline_rows(8 * step + 2 * i + mesh.replicas().rank(),
                                                                    1, model.config.vocab_size));
                                const UpdateResult result = engine.step(batches, 1e-3);
                                own.insert(own.end(), {result.loss, result.gradient_norm});
                                if (evaluates)
                                    engine.evaluate(pipeline_rows(step, 5 + step, model.config.vocab_size));
                            }
                            const std::lock_guard lock(guard);
                            results.insert(own);
                        });
        EXPECT_EQ(results.size(), 1u) << mesh_case.text();
    }
}

// -----------------------------------------------------------------------------------------------------
// weights

/// What the C++ interface reads and takes: every rank gets every leaf, whichever stages have it.
TEST(WeightsOfAPipeline, AreReadAndTakenWhole) {
    for (const test::MeshModel& model : test::pipeline_models(5)) {
        std::map<std::string, std::vector<float>> drawn;
        on_pipeline(model, {}, pipeline_options({}),
                    [&](TrainEngine& engine, Backend& backend, const Mesh& mesh) {
                        engine.model_spec().for_each_leaf([&](const LeafSpec& leaf) {
                            drawn[leaf.name] = read_whole_leaf(engine, leaf.name, backend, mesh);
                        });
                    });
        for (test::MeshCase mesh_case : pipeline_cases())
            for (const Precision& precision : {Precision::fp32(), Precision::with_master(DType::bf16)}) {
                mesh_case.precision = precision;
                on_pipeline(model, mesh_case, pipeline_options(mesh_case),
                            [&](TrainEngine& engine, Backend& backend, const Mesh& mesh) {
                                EXPECT_FALSE(holds_whole_weights(engine));
                                const auto expect_drawn = [&](float times) {
                                    engine.model_spec().for_each_leaf([&](const LeafSpec& leaf) {
                                        std::vector<float> expected = drawn.at(leaf.name);
                                        for (float& value : expected) value *= times;
                                        EXPECT_EQ(read_whole_leaf(engine, leaf.name, backend, mesh), expected)
                                            << leaf.name << ", " << model.name << ", " << mesh_case.text();
                                    });
                                };
                                expect_drawn(1);
                                engine.take_weights(
                                    [&](const LeafSpec& leaf) {
                                        std::vector<float> doubled = drawn.at(leaf.name);
                                        for (float& value : doubled) value *= 2;
                                        return doubled;
                                    },
                                    1);
                                expect_drawn(2);
                            });
            }
    }
}

/// Every stage has its part of the same larger vocabulary.
TEST(WeightsOfAPipeline, HaveTheRowsOfALargerVocabulary) {
    for (test::MeshModel model : test::pipeline_models(5)) {
        if (model.name != "tied" && model.name != "qwen3") continue;
        model.config.resize_vocabulary(70);
        std::vector<std::vector<double>> alone;
        on_pipeline(model, {}, pipeline_options({}), [&](TrainEngine& engine, Backend&, const Mesh& mesh) {
            alone = test::whole_leaves(engine.model_spec(), engine.store(), mesh);
        });
        for (const test::MeshCase& mesh_case : pipeline_cases())
            on_pipeline(model, mesh_case, pipeline_options(mesh_case),
                        [&](TrainEngine& engine, Backend&, const Mesh& mesh) {
                            EXPECT_EQ(test::whole_leaves(engine.model_spec(), engine.store(), mesh), alone)
                                << mesh_case.text();
                        });
    }
}

/// The copies of a tied embedding in the first and in the last stage stay equal, bit for bit.
TEST(WeightsOfAPipeline, AreEqualInBothEndsIfTheyAreTied) {
    const test::MeshModel model = test::pipeline_models(5)[1];
    ASSERT_TRUE(model.config.tie_word_embeddings);
    for (test::MeshCase mesh_case : pipeline_cases())
        for (const char* optimizer : {"adamw_torch", "adafactor", "sgd"}) {
            TrainEngineOptions options = pipeline_options(mesh_case);
            options.optimizer = OptimizerSettings::named(optimizer, 0.1);
            std::mutex guard;
            std::map<std::pair<int, int>, std::set<std::vector<double>>> copies;  // by place in the stage
            int ends = 0;
            on_pipeline(model, mesh_case, options, [&](TrainEngine& engine, Backend&, const Mesh& mesh) {
                for (int step = 0; step < 3; ++step) {
                    std::vector<Batch> batches;
                    for (int i = 0; i < 3; ++i)
                        batches.push_back(pipeline_rows(6 * step + 2 * i + mesh.replicas().rank(), 1,
                                                        model.config.vocab_size));
                    EXPECT_TRUE(engine.step(batches, 1e-2).updated);
                }
                const std::lock_guard lock(guard);
                for (const OwnedLeaf& leaf : engine.store().owned())
                    if (leaf.spec->name == "model.embed_tokens.weight") {
                        copies[{mesh.place().data, mesh.place().tp}].insert(test::values(leaf.param));
                        ++ends;
                    }
            });
            EXPECT_EQ(ends, 2 * mesh_case.shape.data * mesh_case.shape.tp);
            for (const auto& [place, values] : copies) EXPECT_EQ(values.size(), 1u) << mesh_case.text();
        }
}

}  // namespace
}  // namespace drover
