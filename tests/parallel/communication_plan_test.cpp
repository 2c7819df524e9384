#include "train/engine/communication_plan.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <map>
#include <thread>

#include "comm/counting_transport.h"
#include "comm/threads/mailbox_transport.h"
#include "model/block_shape.h"
#include "model/params.h"
#include "parallel/mesh_cases.h"
#include "parallel/mesh_of_nobody.h"
#include "train/engine/train_engine.h"

namespace drover {
namespace {

constexpr std::int64_t rows = 2, row_length = 12;

struct Case {
    std::string name;
    MeshShape shape;
    Sharding sharding = Sharding::replicated;
    bool sequence_parallel = false;
    Recompute recompute = Recompute::none;
    std::string optimizer = "adamw_torch";
    int micro_batches = 2;
    /// Other changes from the defaults.
    std::function<void(TrainEngineOptions&)> change = [](TrainEngineOptions&) {};
};

Batch batch_of(const ModelConfig& config) {
    std::vector<std::int32_t> ids;
    for (std::int64_t i = 0; i < rows * row_length; ++i)
        ids.push_back(static_cast<std::int32_t>(i * 7 % config.vocab_size));
    return Batch::full_rows(rows, row_length, ids, ids);
}

TrainEngineOptions options_of(const test::MeshModel& model, const Case& mesh_case) {
    TrainEngineOptions options{.model = {.precision = Precision::fp32(),
                                         .recompute = {mesh_case.recompute},
                                         .rows = rows,
                                         .row_length = row_length,
                                         .label_smoothing = model.label_smoothing,
                                         .neftune_alpha = model.neftune_alpha},
                               .optimizer = OptimizerSettings::named(mesh_case.optimizer, 0),
                               .sharding = mesh_case.sharding,
                               .sequence_parallel = mesh_case.sequence_parallel};
    mesh_case.change(options);
    return options;
}

/// One rank's traffic, planned and sent.
struct Traffic {
    std::map<std::string, std::size_t> planned;  ///< bytes by axis
    std::map<Channel, std::size_t> sent;         ///< bytes by channel
    std::int64_t planned_calls = 0, calls = 0;   ///< of collectives; messages have only bytes
};

/// Plans an update, does one that is not counted, and then one that is.
void train(World& world, const test::MeshModel& model, const Case& mesh_case, Traffic& traffic) {
    omp_set_num_threads(1);
    const Mesh mesh(world, mesh_case.shape, key_value_copies(model.config, mesh_case.shape.tp));
    const auto backend = make_cpu_backend();
    const TrainEngineOptions options = options_of(model, mesh_case);
    for (const PlannedCollective& part :
         plan_communication(model.config, options, mesh, Device::cpu, mesh_case.micro_batches)) {
        traffic.planned[part.axis] += part.bytes;
        if (part.kind != CollectiveKind::send) traffic.planned_calls += part.calls;
    }

    TrainEngine engine(model.config, options, *backend, mesh);
    engine.allocate();
    engine.initialize_weights(1);
    const std::vector<Batch> micro_batches(static_cast<std::size_t>(mesh_case.micro_batches),
                                           batch_of(model.config));
    engine.step(micro_batches, 1e-3);
    mesh.everyone().barrier({});
    const std::map<Channel, std::size_t> before = traffic.sent;  // nothing is in flight
    const std::int64_t calls_before = world.communication_times().collectives;
    engine.step(micro_batches, 1e-3);
    traffic.calls = world.communication_times().collectives - calls_before;
    for (auto& [channel, bytes] : traffic.sent)
        if (before.contains(channel)) bytes -= before.at(channel);
}

/// What the ranks of a mesh plan and send.
std::vector<Traffic> train_on_threads(const test::MeshModel& model, const Case& mesh_case) {
    const int size = mesh_case.shape.ranks();
    const auto mailboxes = std::make_shared<Mailboxes>(size);
    std::vector<Traffic> traffic(static_cast<std::size_t>(size));
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size; ++rank)
        threads.emplace_back([&, rank] {
            Traffic& own = traffic[static_cast<std::size_t>(rank)];
            World world(
                [&, rank] {
                    return std::make_unique<test::CountingTransport>(make_mailbox_transport(mailboxes, rank),
                                                                     own.sent);
                },
                {});
            run_rank(world, [&](World& each) { train(each, model, mesh_case, own); });
        });
    for (std::thread& thread : threads) thread.join();
    return traffic;
}

/// The names of the axes in the order in which a mesh creates its communicators, two channels each: for
/// collectives and for messages.
std::vector<std::string> axes_of(const MeshShape& shape) {
    std::vector<std::string> axes{"tp",       "data", "dcn",    "dcn+data", "key/value copies",
                                  "everyone", "pp",   "pp ends"};
    for (int link = 0; link < (shape.pp > 1 ? shape.pp : 0); ++link)
        axes.insert(axes.end(), {"pp activations", "pp gradients"});
    return axes;
}

void expect_plan_is_sent(const test::MeshModel& model, const Case& mesh_case) {
    const std::vector<std::string> axes = axes_of(mesh_case.shape);
    const std::vector<Traffic> traffic = train_on_threads(model, mesh_case);
    for (std::size_t rank = 0; rank < traffic.size(); ++rank) {
        std::map<std::string, std::size_t> sent;
        for (const auto& [channel, bytes] : traffic[rank].sent)
            if (bytes > 0) sent[axes.at(static_cast<std::size_t>(channel) / 2)] += bytes;
        EXPECT_GT(sent["everyone"], 0u) << "nothing was counted";
        std::map<std::string, std::size_t> planned = traffic[rank].planned;
        std::erase_if(planned, [](const auto& axis) { return axis.second == 0; });
        EXPECT_EQ(planned, sent) << model.name << ", " << mesh_case.name << ", rank " << rank;
        EXPECT_EQ(traffic[rank].planned_calls, traffic[rank].calls)
            << model.name << ", " << mesh_case.name << ", rank " << rank;
    }
}

TEST(CommunicationPlan, IsWhatIsSent) {
    const std::vector<Case> cases{
        {"ddp", {.data = 2}},
        {"zero1", {.data = 2}, Sharding::zero1},
        {"zero2", {.data = 2}, Sharding::zero2},
        {"zero3", {.data = 4}, Sharding::zero3},
        {"hybrid", {.dcn = 2, .data = 2}, Sharding::zero3, false, Recompute::none, "adafactor"},
        {"tp", {.tp = 2}},
        {"2d", {.data = 2, .tp = 2}, Sharding::zero3, true, Recompute::full, "adafactor"},
        {"copies", {.tp = 4}, Sharding::replicated, true, Recompute::selective_mlp},
        {"attention kept", {.tp = 2}, Sharding::replicated, true, Recompute::selective_attention},
    };
    for (const test::MeshModel& model : test::mesh_models())
        for (const Case& mesh_case : cases) expect_plan_is_sent(model, mesh_case);
}

/// Repeated micro-batches, and the settings that change an update.
TEST(CommunicationPlan, IsWhatIsSentWithEverySetting) {
    const auto without_gathering_ahead = [](TrainEngineOptions& options) {
        options.model.gather_ahead = {.forward = false, .backward = false};
    };
    const auto without_clipping = [](TrainEngineOptions& options) { options.max_gradient_norm = 0; };
    const auto offloaded = [](TrainEngineOptions& options) {
        options.offload_optimizer = true;
        options.model.precision = Precision::with_master(DType::bf16);
    };
    const auto means_of_shared_batches = [](TrainEngineOptions& options) {
        options.shared_batches = true;
        options.compat.loss_denominator = HfCompat::LossDenominator::mean_of_micro_batches;
    };
    const auto smoothed_with_noise = [](TrainEngineOptions& options) {
        options.model.label_smoothing = 0.1;
        options.model.neftune_alpha = 5;
    };
    const auto scaled = [](TrainEngineOptions& options) { options.loss_scaling.emplace(); };
    const MeshShape data{.data = 2}, both{.data = 2, .tp = 2};
    const Recompute full = Recompute::full, selective = Recompute::selective, none = Recompute::none;
    const std::string adamw = "adamw_torch";
    const std::vector<Case> cases{
        {"one micro-batch", data, Sharding::zero3, false, full, adamw, 1},
        {"five micro-batches", data, Sharding::zero3, false, none, adamw, 5, without_gathering_ahead},
        {"ZeRO-2 with three", both, Sharding::zero2, true, selective, "adafactor", 3, without_clipping},
        {"offloaded", both, Sharding::zero1, false, full, adamw, 3, offloaded},
        {"means", both, Sharding::replicated, true, none, "sgd", 3, means_of_shared_batches},
        {"noise", both, Sharding::zero3, true, none, adamw, 2, smoothed_with_noise},
        {"scaled", data, Sharding::replicated, false, none, adamw, 2, scaled},
    };
    std::vector<test::MeshModel> models = test::mesh_models();
    for (test::MeshModel& model : models) {
        if (model.config.has_experts()) model.config.moe.jitter = 0.1;
        for (const Case& mesh_case : cases) expect_plan_is_sent(model, mesh_case);
    }
}

/// Every stage sends something else: the ends of a tied embedding, balance losses, and both directions.
TEST(CommunicationPlan, IsWhatIsSentByEveryStage) {
    const auto pipeline = [](PipelineScheduleKind kind, int chunks) {
        return [=](TrainEngineOptions& options) {
            options.pipeline = {.schedule = kind, .chunks = chunks, .micro_batches = 8};
        };
    };
    const auto plain = PipelineScheduleKind::one_forward_one_backward,
               zero_bubble = PipelineScheduleKind::zero_bubble;
    const Recompute full = Recompute::full, none = Recompute::none;
    const std::string adamw = "adamw_torch";
    const std::vector<Case> cases{
        {"pp 2", {.pp = 2}, Sharding::replicated, false, none, adamw, 3, pipeline(plain, 1)},
        {"pp 4", {.pp = 4}, Sharding::replicated, false, full, adamw, 8, pipeline(zero_bubble, 1)},
        {"interleaved", {.pp = 2}, Sharding::replicated, false, none, "adafactor", 5, pipeline(plain, 2)},
        {"with tp", {.pp = 2, .tp = 2}, Sharding::replicated, true, none, adamw, 4, pipeline(zero_bubble, 2)},
        {"ZeRO-1", {.pp = 2, .data = 2}, Sharding::zero1, false, none, adamw, 3, pipeline(zero_bubble, 1)},
        {"ZeRO-3", {.pp = 2, .data = 2}, Sharding::zero3, false, full, "adafactor", 3, pipeline(plain, 2)},
    };
    for (const test::MeshModel& model : test::pipeline_models(5))
        for (const Case& mesh_case : cases) expect_plan_is_sent(model, mesh_case);
}

std::size_t parameters_of(const UnitSpec& unit) {
    std::int64_t count = 0;
    for (const StorageSpec& storage : unit.storages)
        for (const LeafSpec& leaf : storage.leaves) count += leaf.shape.numel();
    return static_cast<std::size_t>(count);
}

/// A plan needs neither ranks nor memory: this model has 140 GB of weights.
TEST(CommunicationPlan, IsMadeForRanksAndMemoryThatAreNotThere) {
    const ModelConfig config = ModelConfig::parse(
        R"({"vocab_size": 128256, "hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80,
            "num_attention_heads": 64, "num_key_value_heads": 8})",
        "70B");
    const TrainEngineOptions options{.model = {.precision = Precision::with_master(DType::bf16),
                                               .recompute = {Recompute::full},
                                               .rows = 2,
                                               .row_length = 8192},
                                     .sharding = Sharding::zero3};
    const Mesh mesh = test::mesh_of_nobody({.data = 64}, 17);
    const std::vector<PlannedCollective> plan = plan_communication(config, options, mesh, Device::cuda, 4);

    // Every block is gathered for forward and for backward, but two of them are still there at each turn;
    // embedding and head stay.
    const ParamSpec spec = make_param_spec(config);
    const std::size_t block = parameters_of(spec.units[1]);
    const std::size_t gathered = 4 * 2 * 80 * block - (2 * 4 - 1) * 2 * block +
                                 parameters_of(spec.units.front()) + parameters_of(spec.units.back());
    const auto gathers = std::find_if(plan.begin(), plan.end(), [](const PlannedCollective& part) {
        return part.axis == "data" && part.kind == CollectiveKind::all_gather;
    });
    ASSERT_NE(gathers, plan.end());
    EXPECT_EQ(gathers->bytes, gathered * size_of(DType::bf16) / 64 * 63);
    EXPECT_EQ(plan, plan_communication(config, options, mesh, Device::cuda, 4));
}

/// The tokens of such a batch alone would take 1.5 TiB.
TEST(CommunicationPlan, NeedsNoMemoryForTheBatch) {
    const test::MeshModel model = test::mesh_models().front();
    TrainEngineOptions options = options_of(model, {"tp", {.tp = 2}});
    options.model.rows = std::int64_t{1} << 24;
    options.model.row_length = 1 << 13;
    const std::vector<PlannedCollective> plan =
        plan_communication(model.config, options, test::mesh_of_nobody({.tp = 2}, 1), Device::cuda, 1);
    ASSERT_EQ(plan.size(), 2u);
    EXPECT_EQ(plan[0].axis, "tp");
    EXPECT_GT(plan[0].bytes, std::size_t{1} << 43);
    EXPECT_EQ(plan[1].axis, "everyone");
}

}  // namespace
}  // namespace drover
