#include "train/engine/communication_plan.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <map>
#include <mutex>
#include <thread>

#include "comm/threads/mailbox_transport.h"
#include "model/block_shape.h"
#include "parallel/mesh_cases.h"

namespace drover {
namespace {

constexpr std::int64_t rows = 2, row_length = 12;

/// Counts what a rank sends, by channel.
class CountingTransport final : public Transport {
  public:
    CountingTransport(std::unique_ptr<Transport> carrier, std::map<Channel, std::size_t>& sent)
        : carrier_(std::move(carrier)), sent_(sent) {}

    int rank() const override { return carrier_->rank(); }
    int size() const override { return carrier_->size(); }
    Request send(int to, Channel channel, const void* data, std::size_t bytes) override {
        sent_[channel] += bytes;
        return carrier_->send(to, channel, data, bytes);
    }
    Request receive(int from, Channel channel, void* data, std::size_t capacity) override {
        return carrier_->receive(from, channel, data, capacity);
    }
    std::optional<std::size_t> finished(Request request) override { return carrier_->finished(request); }
    void poll(std::chrono::microseconds at_most) override { carrier_->poll(at_most); }
    void wake() override { carrier_->wake(); }
    void send_note(int to, const Note& note) override { carrier_->send_note(to, note); }
    std::vector<ReceivedNote> take_notes() override { return carrier_->take_notes(); }
    const std::optional<FailedRank>& failed_rank() const override { return carrier_->failed_rank(); }
    void tell_failure(std::string_view reason) noexcept override { carrier_->tell_failure(reason); }
    void break_off() noexcept override { carrier_->break_off(); }
    void close() override { carrier_->close(); }

  private:
    std::unique_ptr<Transport> carrier_;
    std::map<Channel, std::size_t>& sent_;  // used by the communication thread alone, until it has ended
};

struct Case {
    std::string name;
    MeshShape shape;
    Sharding sharding;
    bool sequence_parallel = false;
    Recompute recompute = Recompute::none;
    std::string optimizer = "adamw_torch";
};

Batch batch_of(const ModelConfig& config) {
    std::vector<std::int32_t> ids;
    for (std::int64_t i = 0; i < rows * row_length; ++i)
        ids.push_back(static_cast<std::int32_t>(i * 7 % config.vocab_size));
    return Batch::full_rows(rows, row_length, ids, ids);
}

/// Trains one update of two micro-batches on rank `rank`, after one that is not counted, and gives plan and
/// bytes by axis.
void train(World& world, const test::MeshModel& model, const Case& mesh_case,
           std::map<Channel, std::size_t>& sent, std::map<std::string, std::size_t>& planned) {
    omp_set_num_threads(1);
    const Mesh mesh(world, mesh_case.shape, key_value_copies(model.config, mesh_case.shape.tp));
    const auto backend = make_cpu_backend();
    TrainEngineOptions options{.model = {.precision = Precision::fp32(),
                                         .recompute = {mesh_case.recompute},
                                         .rows = rows,
                                         .row_length = row_length,
                                         .label_smoothing = model.label_smoothing,
                                         .neftune_alpha = model.neftune_alpha},
                               .optimizer = OptimizerSettings::named(mesh_case.optimizer, 0),
                               .sharding = mesh_case.sharding,
                               .sequence_parallel = mesh_case.sequence_parallel};
    TrainEngine engine(model.config, options, *backend, mesh);
    engine.allocate();
    engine.initialize_weights(1);
    const std::vector<Batch> micro_batches(2, batch_of(model.config));
    engine.step(micro_batches, 1e-3);
    mesh.everyone().barrier({});
    const std::map<Channel, std::size_t> before = sent;  // nothing is under way
    engine.step(micro_batches, 1e-3);
    for (auto& [channel, bytes] : sent)
        if (before.contains(channel)) bytes -= before.at(channel);
    for (const PlannedCollective& part :
         plan_communication(model.config, options, mesh, engine.store(), Device::cpu, 2))
        planned[part.axis] += part.bytes;
}

TEST(CommunicationPlan, IsWhatIsSent) {
    const std::vector<Case> cases{
        {"ddp", {.data = 2}, Sharding::replicated},
        {"zero1", {.data = 2}, Sharding::zero1},
        {"zero2", {.data = 2}, Sharding::zero2},
        {"zero3", {.data = 4}, Sharding::zero3},
        {"hybrid", {.dcn = 2, .data = 2}, Sharding::zero3, false, Recompute::none, "adafactor"},
        {"tp", {.tp = 2}, Sharding::replicated},
        {"2d", {.data = 2, .tp = 2}, Sharding::zero3, true, Recompute::full, "adafactor"},
        {"copies", {.tp = 4}, Sharding::replicated, true, Recompute::selective_mlp},
    };
    // In the order in which a mesh makes its communicators, two channels each.
    const std::vector<std::string> axes{"tp", "data", "dcn", "dcn+data", "key/value copies", "everyone"};
    for (const test::MeshModel& model : test::mesh_models())
        for (const Case& mesh_case : cases) {
            const int size = mesh_case.shape.ranks();
            const auto mailboxes = std::make_shared<Mailboxes>(size);
            std::vector<std::map<Channel, std::size_t>> sent(static_cast<std::size_t>(size));
            std::vector<std::map<std::string, std::size_t>> planned(static_cast<std::size_t>(size));
            std::vector<std::thread> threads;
            for (int rank = 0; rank < size; ++rank)
                threads.emplace_back([&, rank] {
                    const auto own = static_cast<std::size_t>(rank);
                    World world(
                        [&, rank] {
                            return std::make_unique<CountingTransport>(
                                make_mailbox_transport(mailboxes, rank),
                                sent[static_cast<std::size_t>(rank)]);
                        },
                        {});
                    run_rank(world,
                             [&](World& each) { train(each, model, mesh_case, sent[own], planned[own]); });
                });
            for (std::thread& thread : threads) thread.join();
            EXPECT_GT(sent[0][static_cast<Channel>(2 * (axes.size() - 1))], 0u) << "nothing was counted";
            for (std::size_t rank = 0; rank < sent.size(); ++rank)
                for (std::size_t axis = 0; axis < axes.size(); ++axis)
                    EXPECT_EQ(planned[rank][axes[axis]], sent[rank][static_cast<Channel>(2 * axis)])
                        << model.name << ", " << mesh_case.name << ", rank " << rank << ", " << axes[axis];
        }
}

}  // namespace
}  // namespace drover
