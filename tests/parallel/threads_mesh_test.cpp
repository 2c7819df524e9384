#include <gtest/gtest.h>
#include <omp.h>

#include <map>

#include "comm/fake_links.h"
#include "comm/nccl/nccl_communicators.h"
#include "comm/threads/thread_world.h"
#include "core/error.h"
#include "model/block_shape.h"
#include "model/params.h"
#include "parallel/threads_run.h"
#include "support/errors.h"

namespace drover {
namespace {

constexpr int compared_steps = 10;

/// Trains a model alone and in each of the cases, and compares.
void expect_as_one_process(const test::MeshModel& model, const std::vector<test::MeshCase>& cases) {
    omp_set_num_threads(1);  // with matrices this small, more only cost time
    std::map<std::pair<int, std::string>, test::MeshRun> runs;  // by accumulation and optimizer
    for (const test::MeshCase& mesh_case : cases) {
        const auto [alone, is_new] = runs.try_emplace({mesh_case.accumulation, mesh_case.optimizer});
        if (is_new) alone->second = test::train_on_mesh(model, mesh_case.alone(), Mesh(), compared_steps);
        EXPECT_EQ(test::complaints_on_threads(model, mesh_case, alone->second, compared_steps),
                  std::set<std::string>{})
            << model.name << ", " << mesh_case.text();
    }
}

/// Collectives run on their own streams, one per link, ordered only by `follow` and waits.
TEST(NcclMesh, TrainsAsOneProcessDoes) {
    omp_set_num_threads(1);
    constexpr int few_steps = 2, accumulation = 3;
    const auto network = test::make_fake_network();
    for (const test::MeshModel& model : test::mesh_models()) {
        if (model.name != "grouped-query" && model.name != "uneven") continue;
        const test::MeshRun alone =
            test::train_on_mesh(model, {.accumulation = accumulation}, Mesh(), few_steps);
        run_as_threads(4, {}, [&](World& world) {
            omp_set_num_threads(1);
            NcclCommunicators communicators(world, std::make_unique<test::FakeLinks>(network));
            for (const test::MeshCase& mesh_case : test::mesh_cases(4)) {
                if (mesh_case.accumulation != accumulation) continue;
                const Mesh mesh(world, mesh_case.shape, key_value_copies(model.config, mesh_case.shape.tp),
                                communicators.maker());
                const test::MeshRun run = test::train_on_mesh(model, mesh_case, mesh, few_steps);
                const std::string complaint = test::compare(run, alone).complaint();
                EXPECT_EQ(complaint, "") << model.name << ", " << mesh_case.text();
            }
        });
    }
}

/// Messages of a pipeline's neighbours run beside the collectives of a stage.
TEST(NcclMesh, TrainsAPipelineAsOneProcessDoes) {
    omp_set_num_threads(1);
    constexpr int few_steps = 2;
    using Kind = PipelineScheduleKind;
    const std::vector<test::MeshCase> cases{
        {.shape = {.pp = 4}, .accumulation = 6},
        {.shape = {.pp = 4}, .accumulation = 6, .schedule = Kind::zero_bubble},
        {.shape = {.pp = 2, .tp = 2}, .sequence_parallel = true, .accumulation = 4, .chunks = 2},
        {.shape = {.pp = 2, .data = 2},
         .sharding = Sharding::zero1,
         .accumulation = 4,
         .schedule = Kind::zero_bubble,
         .chunks = 2},
        {.shape = {.pp = 2, .data = 2}, .sharding = Sharding::zero3, .accumulation = 3, .chunks = 2},
    };
    const auto network = test::make_fake_network();
    for (const test::MeshModel& model : test::pipeline_models(5))
        for (const test::MeshCase& mesh_case : cases) {
            const test::MeshRun alone = test::train_on_mesh(model, mesh_case.alone(), Mesh(), few_steps);
            run_as_threads(4, {}, [&](World& world) {
                omp_set_num_threads(1);
                NcclCommunicators communicators(world, std::make_unique<test::FakeLinks>(network));
                const Mesh mesh(world, mesh_case.shape, key_value_copies(model.config, mesh_case.shape.tp),
                                communicators.maker());
                const test::MeshRun run = test::train_on_mesh(model, mesh_case, mesh, few_steps);
                EXPECT_EQ(test::compare(run, alone).complaint(), "")
                    << model.name << ", " << mesh_case.text();
            });
        }
}

class ThreadsMesh : public ::testing::TestWithParam<int> {};

/// Every way of distributing every tiny model over this many ranks trains like one process.
TEST_P(ThreadsMesh, TrainsAsOneProcessDoes) {
    for (const test::MeshModel& model : test::mesh_models())
        expect_as_one_process(model, test::mesh_cases(GetParam()));
}

/// The grouped-query model has biases and copies of key/value heads, the uneven one parts of different sizes,
/// and Mixtral leaves that are one tensor to Adafactor.
TEST_P(ThreadsMesh, TrainsAsOneProcessDoesWithOtherOptimizers) {
    for (const test::MeshModel& model : test::mesh_models())
        if (model.name == "grouped-query" || model.name == "uneven" || model.name == "mixtral")
            expect_as_one_process(model, test::optimizer_cases(GetParam()));
}

/// Noise belongs to a token, regardless of which rank has it.
TEST_P(ThreadsMesh, TrainsAsOneProcessDoesWithRouterNoise) {
    for (test::MeshModel model : test::mesh_models()) {
        if (model.name != "mixtral") continue;
        model.config.moe.jitter = 0.1;
        std::vector<test::MeshCase> cases = test::mesh_cases(GetParam());
        std::erase_if(cases, [](const test::MeshCase& mesh_case) {
            return mesh_case.sharding != Sharding::replicated && mesh_case.sharding != Sharding::zero3;
        });
        expect_as_one_process(model, cases);
    }
}

/// The sum of a row's logits is over all ranks that hold part of the vocabulary; NEFTune's noise also belongs
/// to a token.
TEST_P(ThreadsMesh, TrainsAsOneProcessDoesWithLabelSmoothingAndNeftune) {
    for (test::MeshModel model : test::mesh_models()) {
        if (model.name != "tied" && model.name != "uneven") continue;
        model.label_smoothing = 0.2;
        model.neftune_alpha = 0.3;
        std::vector<test::MeshCase> cases = test::mesh_cases(GetParam());
        std::erase_if(cases, [](const test::MeshCase& mesh_case) {
            return mesh_case.sharding != Sharding::replicated && mesh_case.sharding != Sharding::zero3;
        });
        expect_as_one_process(model, cases);
    }
}

/// Every rank that has part of the vocabulary must choose the same rows for the head, and replicas need not.
TEST_P(ThreadsMesh, TrainsAsOneProcessDoesWithFewTargets) {
    for (test::MeshModel model : test::mesh_models()) {
        if (model.name != "tied" && model.name != "uneven") continue;
        model.label_smoothing = model.name == "tied" ? 0.2 : 0;
        std::vector<test::MeshCase> cases = test::mesh_cases(GetParam());
        std::erase_if(cases, [](const test::MeshCase& mesh_case) {
            return mesh_case.sharding != Sharding::replicated && mesh_case.sharding != Sharding::zero3;
        });
        for (test::MeshCase& mesh_case : cases) {
            mesh_case.rows = 64;
            mesh_case.row_kind = test::RowKind::answers;
        }
        expect_as_one_process(model, cases);
    }
}

/// Older releases take the mean over a batch, here over all replicas together.
TEST_P(ThreadsMesh, TrainsAsOneProcessDoesWithMeansOfBatches) {
    using LossDenominator = HfCompat::LossDenominator;
    for (const auto& [denominator, smoothing] :
         {std::pair(LossDenominator::all_labels, 0.2), std::pair(LossDenominator::all_labels, 0.0),
          std::pair(LossDenominator::mean_of_micro_batches, 0.2)}) {
        test::MeshModel model = test::mesh_models()[0];
        model.label_smoothing = smoothing;
        model.compat.loss_denominator = denominator;
        std::vector<test::MeshCase> cases = test::mesh_cases(GetParam());
        std::erase_if(cases, [](const test::MeshCase& mesh_case) {
            return mesh_case.sharding != Sharding::zero3 || mesh_case.accumulation == 1;
        });
        expect_as_one_process(model, cases);
    }
}

/// The stream has another dtype than the branches, which matters where tokens are split.
TEST(MixedMesh, TrainsAsOneProcessDoes) {
    omp_set_num_threads(1);
    Precision precision = Precision::with_master(DType::bf16);
    precision.residual = DType::f32;
    for (const test::MeshModel& model : test::mesh_models()) {
        if (model.name != "grouped-query" && model.name != "mixtral") continue;
        const test::MeshRun alone =
            test::train_on_mesh(model, {.precision = precision}, Mesh(), compared_steps);
        for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::selective_mlp,
                                          Recompute::selective_attention, Recompute::full})
            for (const bool sequence_parallel : {false, true}) {
                const test::MeshCase mesh_case{.shape = {.tp = 2},
                                               .sequence_parallel = sequence_parallel,
                                               .precision = precision,
                                               .recompute = recompute};
                EXPECT_EQ(test::complaints_on_threads(model, mesh_case, alone, compared_steps),
                          std::set<std::string>{})
                    << model.name << ", " << mesh_case.text();
            }
    }
}

/// A single rank that copies takes the same path as several, and so do its numbers.
TEST(CopyingMesh, TrainsAsOneProcessDoes) {
    omp_set_num_threads(1);
    constexpr int few_steps = 3;
    const auto network = test::make_fake_network();
    for (const test::MeshModel& model : test::mesh_models()) {
        const test::MeshRun alone = test::train_on_mesh(model, {.accumulation = 2}, Mesh(), few_steps);
        for (const bool nccl : {false, true})
            run_as_threads(1, {.gpu_times = true}, [&](World& world) {
                NcclCommunicators communicators(world, std::make_unique<test::FakeLinks>(network));
                const auto make = [&](std::string axis, std::vector<int> ranks, SingleRankAxis single_rank) {
                    return nccl ? communicators.make(std::move(axis), std::move(ranks), single_rank)
                                : world.make_communicator(std::move(axis), std::move(ranks), single_rank);
                };
                const Mesh mesh = Mesh::that_copies(world, make);
                for (const Sharding sharding : {Sharding::zero1, Sharding::zero2, Sharding::zero3}) {
                    const test::MeshRun run = test::train_on_mesh(
                        model, {.sharding = sharding, .accumulation = 2}, mesh, few_steps);
                    EXPECT_EQ(test::compare(run, alone).complaint(), "")
                        << model.name << ", " << name_of(sharding);
                }
                const auto times = nccl ? communicators.times() : world.communication_times();
                EXPECT_GT(times.collectives, 3 * few_steps * 20);
            });
    }
}

INSTANTIATE_TEST_SUITE_P(Ranks, ThreadsMesh, ::testing::Values(2, 4),
                         [](const auto& ranks) { return std::to_string(ranks.param); });

TEST(Mesh, PlacesAreRowMajor) {
    const MeshShape shape{.pp = 2, .dcn = 1, .data = 3, .cp = 1, .tp = 2};
    EXPECT_EQ(shape.ranks(), 12);
    const MeshPlace place = place_of(shape, 9);
    EXPECT_EQ(place.pp, 1);
    EXPECT_EQ(place.data, 1);
    EXPECT_EQ(place.tp, 1);
}

TEST(Mesh, WrongNumberOfRanksIsExplained) {
    test::expect_error([] { run_as_threads(2, {}, [](World& world) { Mesh(world, {.data = 3}); }); },
                       {"has 3 ranks, but 2 were started"});
}

TEST(Mesh, HeadsThatCannotBeSpreadAreExplained) {
    const ModelConfig config = ModelConfig::parse(
        R"({"hidden_size": 48, "num_attention_heads": 12, "num_key_value_heads": 4, "vocab_size": 100})",
        "x");
    EXPECT_NO_THROW(check_tensor_parallel(config, 4));
    EXPECT_NO_THROW(check_tensor_parallel(config, 12));
    test::expect_error([&] { check_tensor_parallel(config, 5); }, {"12 attention heads", "over 5 "});
    test::expect_error([&] { check_tensor_parallel(config, 6); }, {"4 key/value heads", "over 6 "});
    EXPECT_EQ(key_value_copies(config, 12), 3);
    EXPECT_EQ(key_value_copies(config, 2), 1);
}

TEST(Mesh, SplitRangesCoverEverythingOnce) {
    for (const std::int64_t total : {0, 1, 7, 64, 101})
        for (const std::int64_t parts : {1, 2, 3, 4, 8}) {
            std::int64_t next = 0;
            for (std::int64_t i = 0; i < parts; ++i) {
                const Range part = split_range(total, parts, i);
                EXPECT_EQ(part.begin, std::min(next, total));
                next = part.end();
            }
            EXPECT_EQ(next, total);
        }
}

TEST(Mesh, TableShowsEveryLeafsPlaceAndBytes) {
    run_as_threads(4, {}, [](World& world) {
        const ModelConfig config = test::mesh_models()[1].config;
        const Mesh mesh(world, {.data = 2, .tp = 2});
        const std::string table =
            placement_table(make_param_spec(config), mesh, Sharding::zero3, DType::bf16);
        if (mesh.rank() != 0) return;
        EXPECT_NE(table.find("data 2"), std::string::npos) << table;
        EXPECT_NE(table.find("model.layers.0.self_attn.k_proj.weight"), std::string::npos) << table;
        EXPECT_NE(table.find("[16, 32]"), std::string::npos) << table;  // q held here: half of 32 rows
        EXPECT_NE(table.find("[8, 32]"), std::string::npos) << table;   // and owned: half of them
        EXPECT_NE(table.find("[16] "), std::string::npos) << table;     // a norm owned: half of 32 values
        EXPECT_EQ(table.find(", 1]"), std::string::npos) << table;
        EXPECT_EQ(table.find("cp 1"), std::string::npos) << table;
        EXPECT_NE(table.find("and 2 more blocks"), std::string::npos) << table;
    });
}

}  // namespace
}  // namespace drover
