// FP8 products with weights that are not trained.

#include <gtest/gtest.h>

#include <map>

#include "backend/operation_profile.h"
#include "model/params.h"
#include "support/test_backend.h"
#include "train/golden_fp8.h"
#include "train/golden_lora.h"

namespace drover {
namespace {

constexpr int blocks = 2;

ModelConfig config(const std::string& more = "") {
    return ModelConfig::parse(
        R"({"vocab_size": 32, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
            "num_attention_heads": 4, "num_key_value_heads": 2, "initializer_range": 0.1)" +
            more + "}",
        "config");
}

ModelConfig with_experts() {
    return config(R"(, "model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2)");
}

/// Adapters of all matrices.
Adapters adapters_of(const ModelConfig& config) {
    Adapters adapters;
    for (const std::string& name : names_in_module_order(config))
        if (name.find("layers") != std::string::npos && name.find("norm") == std::string::npos &&
            name.find("gate.weight") == std::string::npos && name.ends_with(".weight"))
            adapters.weights.push_back({.leaf = name, .rank = 4, .scale = 2});
    return adapters;
}

/// Whether the tests' device trains it.
bool trains(const ModelConfig& config, Fp8Recipe recipe) {
    return recipe != Fp8Recipe::blockwise || !config.has_experts() || test::multiplies_experts_in_blocks();
}

constexpr Fp8Recipe recipes[] = {Fp8Recipe::tensorwise, Fp8Recipe::blockwise};

struct Case {
    std::string name;
    ModelConfig config;
    CausalLmOptions options;
};

std::vector<Case> cases() {
    const auto lora = [](const ModelConfig& of) {
        return CausalLmOptions{.precision = Precision::with_master(DType::bf16), .adapters = adapters_of(of)};
    };
    std::vector<Case> all;
    all.push_back({"LoRA", config(), lora(config())});
    all.push_back({"DoRA", config(), lora(config())});
    all.back().options.adapters.magnitudes = true;
    all.push_back({"dropout, full recompute", config(), lora(config())});
    all.back().options.adapters.dropout = 0.25;
    all.back().options.recompute = {Recompute::full};
    // Of q, k and v one is trained whole, so their matrix is not frozen; nor is one block's down.
    all.push_back({"some matrices", config(), lora(config())});
    all.back().options.adapters = {
        .weights = {{.leaf = "model.layers.0.mlp.up_proj.weight", .rank = 4}},
        .trained_leaves = {"model.layers.0.self_attn.k_proj.weight", "model.layers.1.mlp.down_proj.weight"}};
    for (const auto& [name, mode] : {std::pair("experts", MoeMode::grouped), {"stacked", MoeMode::stacked}}) {
        all.push_back({name, with_experts(), lora(with_experts())});
        all.back().options.moe_mode = mode;
    }
    return all;
}

std::unique_ptr<TrainEngine> engine_of(const Case& of, Backend& backend, bool keeps = true,
                                       Fp8Recipe fp8 = Fp8Recipe::tensorwise) {
    TrainEngineOptions options{.model = of.options, .max_gradient_norm = 1, .compat = {}};
    options.model.fp8 = fp8;
    options.model.keeps_frozen_fp8 = keeps;
    options.model.rows = 3;
    options.model.row_length = 21;
    auto engine = std::make_unique<TrainEngine>(of.config, options, backend, test::single_mesh());
    engine->allocate();
    engine->initialize_weights(1);
    engine->initialize_adapters(2);
    return engine;
}

std::vector<Batch> two_batches() {
    std::vector<Batch> batches;
    for (const int step : {3, 7}) {
        std::vector<std::int32_t> ids;
        for (int i = 0; i < 3 * 21; ++i) ids.push_back((i * i + step * i) % 31);
        batches.push_back(Batch::full_rows(3, 21, ids, ids));
    }
    return batches;
}

/// How often each operation runs in a step.
std::map<std::string, std::int64_t> calls_in_a_step(TrainEngine& engine, Backend& backend) {
    const OperationProfile profile(backend);
    engine.step(two_batches(), 1e-3);
    std::map<std::string, std::int64_t> calls;
    for (const OperationTotal& total : profile.totals()) calls[std::string(total.cost.name)] += total.calls;
    return calls;
}

TEST(Fp8Frozen, KeptCopiesGiveTheBitsOfNewOnes) {
    const auto backend = test::make_test_backend();
    for (const Fp8Recipe recipe : recipes)
        for (const Case& of : cases()) {
            if (!trains(of.config, recipe)) continue;
            const auto kept = engine_of(of, *backend, true, recipe),
                       made = engine_of(of, *backend, false, recipe);
            for (int step = 0; step < 3; ++step) {
                const UpdateResult one = kept->step(two_batches(), 5e-3),
                                   other = made->step(two_batches(), 5e-3);
                EXPECT_EQ(one.loss, other.loss) << of.name;
                EXPECT_EQ(one.gradient_norm, other.gradient_norm) << of.name;
            }
            EXPECT_EQ(kept->evaluate(two_batches()[0]).loss_sum, made->evaluate(two_batches()[0]).loss_sum);
            EXPECT_TRUE(test::everything(*kept) == test::everything(*made)) << of.name;
        }
}

/// Two micro-batches, in each of which a product quantises its input, and in backward its gradient, but no
/// weight: its copy is turned around.
TEST(Fp8Frozen, WeightsAreQuantisedOnce) {
    const auto backend = test::make_test_backend();
    const Case of = cases()[0];
    const auto kept = engine_of(of, *backend), made = engine_of(of, *backend, false);
    std::map<std::string, std::int64_t> first = calls_in_a_step(*kept, *backend),
                                        later = calls_in_a_step(*kept, *backend),
                                        always = calls_in_a_step(*made, *backend);
    constexpr std::int64_t matrices = 4 * blocks, micro_batches = 2;
    EXPECT_EQ(first["quantise"] - later["quantise"], matrices);
    EXPECT_EQ(first["quantise, transposed"], 0);
    EXPECT_EQ(later["quantise"], 2 * matrices * micro_batches);
    EXPECT_EQ(later["fp8 transpose"], matrices * micro_batches);
    EXPECT_EQ(always["fp8 transpose"], 0);
    EXPECT_EQ(always["quantise"] + always["quantise, transposed"], 4 * matrices * micro_batches);
    EXPECT_EQ(always["absolute maximum"] - later["absolute maximum"], matrices * micro_batches);
    EXPECT_EQ(first["absolute maximum"] - later["absolute maximum"], matrices);
}

TEST(Fp8Frozen, WeightsInBlocksAreQuantisedOnce) {
    const auto backend = test::make_test_backend();
    const Case of = cases()[0];
    const auto kept = engine_of(of, *backend, true, Fp8Recipe::blockwise),
               made = engine_of(of, *backend, false, Fp8Recipe::blockwise);
    std::map<std::string, std::int64_t> first = calls_in_a_step(*kept, *backend),
                                        later = calls_in_a_step(*kept, *backend),
                                        always = calls_in_a_step(*made, *backend);
    constexpr std::int64_t matrices = 4 * blocks, micro_batches = 2;
    EXPECT_EQ(first["quantise blocks, transposed"], matrices);
    EXPECT_EQ(later["quantise blocks, transposed"], 0);
    EXPECT_EQ(later["quantise blocks"], 2 * matrices * micro_batches);
    EXPECT_EQ(later["fp8 transpose"], matrices * micro_batches);
    EXPECT_EQ(always["quantise blocks"] + always["quantise blocks, transposed"],
              4 * matrices * micro_batches);
    EXPECT_EQ(first["absolute maximum"] + first["quantise"], 0);
}

TEST(Fp8Frozen, NewWeightsAreQuantisedAgain) {
    const auto backend = test::make_test_backend();
    const auto used = engine_of(cases()[0], *backend), fresh = engine_of(cases()[0], *backend);
    used->step(two_batches(), 1e-3);
    for (TrainEngine* engine : {used.get(), fresh.get()}) {
        engine->initialize_weights(5);
        engine->initialize_adapters(6);
    }
    EXPECT_EQ(used->evaluate(two_batches()[0]).loss_sum, fresh->evaluate(two_batches()[0]).loss_sum);
    const auto other = engine_of(cases()[0], *backend);
    EXPECT_NE(used->evaluate(two_batches()[0]).loss_sum, other->evaluate(two_batches()[0]).loss_sum);
}

TEST(Fp8Frozen, TrainsLikeBfloat16) {
    const auto backend = test::make_test_backend();
    for (const auto& [of, recipe] :
         {std::pair{cases()[0], recipes[0]}, {cases()[4], recipes[0]}, {cases()[4], recipes[1]}}) {
        if (!trains(of.config, recipe)) continue;
        const auto fp8 = engine_of(of, *backend, true, recipe),
                   plain = engine_of(of, *backend, true, Fp8Recipe::none);
        std::vector<double> losses;
        for (int step = 0; step < 20; ++step) {
            losses.push_back(fp8->step(two_batches(), 5e-3).loss);
            EXPECT_NEAR(losses.back(), plain->step(two_batches(), 5e-3).loss, 0.05 * losses.back() + 0.03)
                << of.name << ", step " << step;
        }
        EXPECT_LT(losses.back(), losses.front() - 0.5) << of.name;
    }
}

/// A byte per frozen weight of a block, and no room for what frozen weights do not need. The largest weight's
/// is for its transpose.
TEST(Fp8Frozen, ThePlanHasTheCopies) {
    const auto backend = test::make_test_backend();
    const auto plan = [&](bool keeps, Fp8Recipe fp8 = Fp8Recipe::tensorwise) {
        return engine_of(cases()[0], *backend, keeps, fp8)->memory_plan();
    };
    const MemoryPlan kept = plan(true), made = plan(false), plain = plan(true, Fp8Recipe::none);
    constexpr std::size_t qkv = 128 * 64, output = 64 * 64, gate_up = 192 * 64, down = 64 * 96;
    constexpr std::size_t copies = blocks * (qkv + output + gate_up + down), table = 256;
    EXPECT_EQ(kept[MemoryUse::parameters] - made[MemoryUse::parameters], copies + blocks * table);
    EXPECT_EQ(made[MemoryUse::parameters], plain[MemoryUse::parameters]);
    EXPECT_EQ(made[MemoryUse::scratch], kept[MemoryUse::scratch]);
    // The transpose of a gradient is for the matrices that are trained: 63 tokens, filled up to 64.
    Case trained = cases()[0];
    trained.options.adapters.trained_leaves = {"model.layers.1.self_attn.o_proj.weight"};
    EXPECT_EQ(
        engine_of(trained, *backend, false)->memory_plan()[MemoryUse::scratch] - made[MemoryUse::scratch],
        64 * 64);
}

/// The same, with scales of 128 × 128 weights for each of the copies and for its transpose.
TEST(Fp8Frozen, ThePlanHasTheScalesOfCopiesInBlocks) {
    const auto backend = test::make_test_backend();
    const auto plan = [&](bool keeps) {
        return engine_of(cases()[0], *backend, keeps, Fp8Recipe::blockwise)->memory_plan();
    };
    const MemoryPlan kept = plan(true), made = plan(false);
    constexpr std::size_t qkv = 128 * 64, output = 64 * 64, gate_up = 192 * 64, down = 64 * 96;
    // Of less than 128 × 128 but for gate and up; each table begins at a multiple of 256 bytes.
    constexpr std::size_t copies = qkv + output + gate_up + down, tables = 8 * 256;
    EXPECT_EQ(kept[MemoryUse::parameters] - made[MemoryUse::parameters], blocks * (copies + tables));
    constexpr std::size_t of_gate_up = 256;
    EXPECT_EQ(made[MemoryUse::scratch] - kept[MemoryUse::scratch], of_gate_up)
        << "room for a weight's scales";
}

/// PyTorch's step with every product in emulated FP8: what is trained beside frozen matrices gets the
/// gradients that it has there. New adapters add nothing, so the loss is that of the model, too.
TEST(Fp8Frozen, GradientsThatPassThroughFrozenMatricesArePyTorchs) {
    const auto backend = test::make_test_backend();
    for (const char* name : {"gqa_float32", "biases_float32", "qwen2_float32", "blockwise_float32"}) {
        const test::GoldenFp8 golden(name);
        TrainEngineOptions options = golden.options(Precision::fp32());
        options.model.adapters = adapters_of(golden.config());
        for (const std::string& leaf : names_in_module_order(golden.config()))
            if (const bool is_tied = golden.config().tie_word_embeddings;
                leaf.find("norm") != std::string::npos || (!is_tied && leaf == embedding_leaf))
                options.model.adapters.trained_leaves.push_back(leaf);
        const auto engine = golden.GoldenStep::engine(*backend, options);
        engine->initialize_adapters(1);
        const std::vector<Batch> batches = {golden.batch()};
        const bool is_cpu = !test::tests_use_cuda();
        EXPECT_NEAR(engine->accumulate_gradients(batches).loss, golden.loss(), is_cpu ? 1e-4 : 5e-3);
        int compared = 0;
        for (const OwnedLeaf& leaf : engine->store().owned()) {
            if (!leaf.gradient || leaf.spec->is_adapter()) continue;
            const Tensor expected = golden.file().tensor("grad." + leaf.spec->name);
            if (is_cpu)
                EXPECT_LE(test::relative_error(leaf.gradient, expected), 1e-2) << leaf.spec->name;
            else
                EXPECT_GE(test::cosine(leaf.gradient, expected), 0.985) << leaf.spec->name;
            ++compared;
        }
        const int others = golden.config().tie_word_embeddings ? 1 : 2;
        EXPECT_EQ(compared, others + 2 * golden.config().num_hidden_layers) << name;
    }
}

}  // namespace
}  // namespace drover
