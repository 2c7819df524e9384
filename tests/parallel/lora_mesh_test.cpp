#include <gtest/gtest.h>
#include <omp.h>

#include <set>

#include "model/params.h"
#include "parallel/rank_run.h"
#include "parallel/threads_run.h"
#include "support/golden.h"

namespace drover {
namespace {

using Kind = PipelineScheduleKind;

/// Adapters of all matrices whose names end in one of `targets`; ranks and scales differ.
Adapters mesh_adapters(const ModelConfig& config, const std::set<std::string>& targets) {
    Adapters adapters;
    for (const std::string& name : names_in_module_order(config)) {
        const std::size_t end = name.rfind(".weight"), begin = name.rfind('.', end - 1) + 1;
        if (end == std::string::npos || !targets.contains(name.substr(begin, end - begin))) continue;
        const bool is_value = name.ends_with("v_proj.weight");
        adapters.weights.push_back({.leaf = name, .rank = is_value ? 2 : 3, .scale = is_value ? 1.5 : 2.0});
    }
    return adapters;
}

test::MeshModel with_adapters(test::MeshModel model, const std::set<std::string>& targets) {
    model.adapters = mesh_adapters(model.config, targets);
    return model;
}

const std::set<std::string> all_matrices = {"q_proj",    "k_proj",  "v_proj",   "o_proj",
                                            "gate_proj", "up_proj", "down_proj"};

/// Every kind of weight, also with parts of fused ones, biases, heads that are copied, and uneven sizes.
std::vector<test::MeshModel> lora_models() {
    std::vector<test::MeshModel> models = {
        with_adapters(test::model_named("grouped-query"), all_matrices),
        with_adapters(test::model_named("uneven"), {"q_proj", "v_proj", "up_proj", "down_proj"}),
        with_adapters(test::model_named("tied"), {"k_proj", "o_proj", "gate_proj"}),
        with_adapters(test::model_named("qwen3"), all_matrices),
        with_adapters(test::model_named("mixtral"), {"q_proj", "k_proj", "v_proj", "o_proj"}),
    };
    // Only one block of three, and a head that is trained whole.
    test::MeshModel& few =
        models.emplace_back(with_adapters(test::model_named("grouped-query"), {"q_proj", "down_proj"}));
    std::erase_if(few.adapters.weights,
                  [](const AdaptedWeight& weight) { return !weight.leaf.starts_with("model.layers.1."); });
    few.name = "one block";
    few.adapters.trained_leaves = {"lm_head.weight", "model.layers.2.mlp.up_proj.bias"};
    // Nothing to train in the first stage of a pipeline.
    test::MeshModel& upper =
        models.emplace_back(with_adapters(test::model_named("grouped-query"), {"v_proj"}));
    std::erase_if(upper.adapters.weights,
                  [](const AdaptedWeight& weight) { return !weight.leaf.starts_with("model.layers.2."); });
    upper.name = "last block";
    test::MeshModel& dropping = models.emplace_back(models[0]);
    dropping.name = "dropout";
    dropping.adapters.dropout = 0.25;
    test::MeshModel& experts = models.emplace_back(
        with_adapters(test::model_named("mixtral"), {"q_proj", "gate", "w1", "w2", "w3"}));
    experts.name = "experts";
    experts.adapters.dropout = 0.25;
    test::MeshModel& some = models.emplace_back(with_adapters(test::model_named("mixtral"), {"w3"}));
    some.name = "some matrices of experts";
    // The vocabulary is uneven here too.
    for (const char* name : {"grouped-query", "uneven", "tied"}) {
        test::MeshModel& vocabulary = models.emplace_back(test::model_named(name));
        vocabulary.config.separate_head();
        vocabulary.adapters = mesh_adapters(vocabulary.config, {"embed_tokens", "v_proj", "lm_head"});
        vocabulary.adapters.dropout = 0.25;
        vocabulary.name += ", vocabulary";
    }
    test::MeshModel& embedding =
        models.emplace_back(with_adapters(test::model_named("grouped-query"), {"embed_tokens"}));
    embedding.name = "only the embedding";
    for (const char* name : {"grouped-query", "uneven", "qwen3"}) {
        test::MeshModel& lengths = models.emplace_back(with_adapters(test::model_named(name), all_matrices));
        lengths.name += ", DoRA";
        lengths.adapters.magnitudes = true;
    }
    return models;
}

std::vector<test::MeshCase> lora_cases() {
    return {
        {.shape = {.data = 2}},
        {.shape = {.data = 2}, .sharding = Sharding::zero1, .accumulation = 2},
        {.shape = {.data = 2}, .sharding = Sharding::zero2, .accumulation = 2},
        {.shape = {.data = 2}, .sharding = Sharding::zero3, .accumulation = 2},
        {.shape = {.tp = 2}},
        {.shape = {.tp = 4}, .optimizer = "adafactor"},
        {.shape = {.tp = 2}, .sequence_parallel = true, .accumulation = 2},
        {.shape = {.data = 2, .tp = 2},
         .sharding = Sharding::zero3,
         .sequence_parallel = true,
         .recompute = Recompute::full},
        {.shape = {.dcn = 2, .data = 2}, .sharding = Sharding::zero1, .optimizer = "sgd"},
        {.shape = {.pp = 2}, .accumulation = 4},
        {.shape = {.pp = 2}, .accumulation = 4, .schedule = Kind::zero_bubble},
        {.shape = {.pp = 2, .tp = 2},
         .sequence_parallel = true,
         .accumulation = 4,
         .schedule = Kind::zero_bubble},
        {.shape = {.pp = 2, .data = 2}, .sharding = Sharding::zero3, .accumulation = 4},
    };
}

TEST(LoraMesh, TrainsAsOneProcessDoes) {
    omp_set_num_threads(1);
    constexpr int steps = 6;
    for (const test::MeshModel& model : lora_models()) {
        std::map<std::string, test::MeshRun> alone;
        for (test::MeshCase mesh_case : lora_cases()) {
            if (mesh_case.shape.pp > 1) mesh_case.rows = 2;
            const auto [run, is_new] = alone.try_emplace(mesh_case.alone().text());
            if (is_new) run->second = test::run_on_threads(model, mesh_case.alone(), steps);
            EXPECT_EQ(test::complaints_on_threads(model, mesh_case, run->second, steps),
                      std::set<std::string>{})
                << model.name << ", " << mesh_case.text();
        }
    }
}

/// A run goes on from another mesh's checkpoint, which holds what is trained.
TEST(LoraMesh, ResumesOnAnotherMesh) {
    std::set<std::string> adapted = all_matrices;
    adapted.insert({"embed_tokens", "lm_head"});
    const test::MeshModel model = with_adapters(test::model_named("grouped-query"), adapted);
    const test::TemporaryFolder first, second;
    const test::MeshCase alone{.shape = {}, .accumulation = 2},
        sharded{.shape = {.data = 2, .tp = 2}, .sharding = Sharding::zero3, .accumulation = 2};
    const Json expected = test::records_of(model, alone, first.path(), 4);
    const std::filesystem::path checkpoint = first / "checkpoint-2";
    EXPECT_TRUE(std::filesystem::exists(checkpoint / "adapter_model.safetensors"));
    EXPECT_FALSE(std::filesystem::exists(checkpoint / "model.safetensors"));
    test::expect_same_curve(test::records_of(model, sharded, second.path(), 4, checkpoint), expected);
}

/// DoRA starts with the lengths of the weights' rows, wherever the weights are.
TEST(LoraMesh, FirstValuesAreThoseOfOneProcess) {
    test::MeshModel lengths = with_adapters(test::model_named("uneven"), all_matrices),
                    vocabulary = with_adapters(test::model_named("uneven"), {"embed_tokens", "lm_head"});
    lengths.adapters.magnitudes = true;
    const auto values_on = [](const test::MeshModel& model, const test::MeshCase& mesh_case) {
        std::vector<std::vector<double>> values;
        run_as_threads(mesh_case.shape.ranks(), {}, [&](World& world) {
            omp_set_num_threads(1);
            const Mesh mesh(world, mesh_case.shape, key_value_copies(model.config, mesh_case.shape.tp));
            const auto backend = make_cpu_backend();
            TrainEngine engine(model.config,
                               {.model = {.rows = 1, .row_length = 8, .adapters = model.adapters},
                                .sharding = mesh_case.sharding},
                               *backend, mesh);
            engine.allocate();
            engine.initialize_weights(1);
            engine.initialize_adapters(2);
            auto own = test::whole_leaves(engine.model_spec(), engine.store(), mesh);
            if (mesh.rank() == 0) values = std::move(own);
        });
        return values;
    };
    for (const test::MeshModel* model : {&lengths, &vocabulary}) {
        const auto expected = values_on(*model, {.shape = {}});
        for (const test::MeshCase& mesh_case : lora_cases())
            if (mesh_case.shape.pp == 1) {
                EXPECT_EQ(values_on(*model, mesh_case), expected) << mesh_case.text();
            }
    }
}

/// Interleaved chunks need as many layers.
TEST(LoraMesh, TrainsOnAnInterleavedPipeline) {
    omp_set_num_threads(1);
    constexpr int steps = 4;
    for (const test::MeshModel& model : test::pipeline_models(4)) {
        const test::MeshModel lora = with_adapters(model, all_matrices);
        for (const Kind schedule : {Kind::one_forward_one_backward, Kind::zero_bubble}) {
            const test::MeshCase mesh_case{
                .shape = {.pp = 2}, .accumulation = 4, .rows = 2, .schedule = schedule, .chunks = 2};
            const test::MeshRun alone = test::run_on_threads(lora, mesh_case.alone(), steps);
            EXPECT_EQ(test::complaints_on_threads(lora, mesh_case, alone, steps), std::set<std::string>{})
                << model.name << ", " << mesh_case.text();
        }
    }
}

}  // namespace
}  // namespace drover
