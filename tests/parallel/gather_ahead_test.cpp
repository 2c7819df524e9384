#include <gtest/gtest.h>
#include <omp.h>

#include "comm/fake_links.h"
#include "comm/nccl/nccl_communicators.h"
#include "comm/threads/thread_world.h"
#include "parallel/mesh_cases.h"
#include "train/engine/train_engine.h"

namespace drover {
namespace {

/// How many groups of collectives had been enqueued when each block's attention began.
struct Started {
    std::vector<int> forward, backward;
};

class StartedObserver final : public OperationObserver {
  public:
    StartedObserver(const test::FakeLinks& links, Started& started)
        : links_(links), before_(links.enqueued()), started_(started) {}

    void begin(const OperationCost& cost, Stream) override {
        if (cost.name == "attention") started_.forward.push_back(links_.enqueued() - before_);
        if (cost.name == "attention backward") started_.backward.push_back(links_.enqueued() - before_);
    }
    void end(const OperationCost&, Stream) override {}

  private:
    const test::FakeLinks& links_;
    const int before_;
    Started& started_;
};

/// One step of three blocks on a single rank that copies.
Started started(const GatherAhead& ahead) {
    omp_set_num_threads(1);
    const auto world = ThreadWorld(1).join(0);
    auto owned_links = std::make_unique<test::FakeLinks>(test::make_fake_network());
    const test::FakeLinks& links = *owned_links;
    NcclCommunicators communicators(*world, std::move(owned_links));
    const Mesh mesh =
        Mesh::that_copies(*world, [&](std::string axis, std::vector<int> ranks, SingleRankAxis single_rank) {
            return communicators.make(std::move(axis), std::move(ranks), single_rank);
        });
    const auto backend = make_cpu_backend();
    const ModelConfig config = test::mesh_models()[1].config;
    TrainEngine engine(config,
                       {.model = {.precision = Precision::fp32(),
                                  .recompute = {},
                                  .rows = 1,
                                  .row_length = 8,
                                  .gather_ahead = ahead},
                        .compat = {},
                        .sharding = Sharding::zero3},
                       *backend, mesh);
    engine.allocate();
    engine.initialize_weights(1);
    const std::vector<std::int32_t> ids{1, 2, 3, 4, 5, 6, 7, 8};
    Started result;
    StartedObserver observer(links, result);
    backend->observe(&observer);
    engine.step(std::vector{Batch::full_rows(1, 8, ids, ids)}, 1e-3);
    backend->observe(nullptr);
    return result;
}

/// Forward gathers E, 0, 1, 2, head. Backward scatters the head, 2 and 1 before the next attention; 2 and 1
/// are still in their buffers, so it gathers only 0: while 1 computes, or later.
TEST(GatherAhead, TheNextBlockIsAskedForWhileOneComputes) {
    const Started both = started({});
    EXPECT_EQ(both.forward, (std::vector{3, 4, 5}));
    EXPECT_EQ(both.backward, (std::vector{6, 8, 9}));
    const Started neither = started({.forward = false, .backward = false});
    EXPECT_EQ(neither.forward, (std::vector{2, 3, 4}));
    EXPECT_EQ(neither.backward, (std::vector{6, 7, 9}));
    EXPECT_EQ(started({.forward = false}).backward, both.backward);
    EXPECT_EQ(started({.backward = false}).forward, both.forward);
}

}  // namespace
}  // namespace drover
