#include "parallel/schedule/generators.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"

namespace drover {
namespace {

void require_positive(const PipelineShape& shape) {
    if (shape.ranks < 1 || shape.chunks < 1 || shape.micro_batches < 1)
        throw Error(fmt::format("A pipeline cannot have {} ranks, {} chunks per rank and {} micro-batches.",
                                shape.ranks, shape.chunks, shape.micro_batches),
                    "Give it at least one of each.");
}

void require_whole_turns(const PipelineShape& shape) {
    require_positive(shape);
    const int rest = shape.micro_batches % shape.ranks;
    if (rest == 0) return;
    const int below = shape.micro_batches - rest, above = below + shape.ranks;
    throw Error(fmt::format("A pipeline of {} ranks with several chunks each cannot take {} micro-batches.",
                            shape.ranks, shape.micro_batches),
                below == 0 ? fmt::format("Use {} micro-batches, or a multiple of it.", above)
                           : fmt::format("Use {} or {} micro-batches.", below, above));
}

struct StageAndMicroBatch {
    int stage, micro_batch;
};

/// The order in which a rank takes its chunks: P micro-batches with each of them, then the next P. Backward
/// begins with the last chunk.
std::vector<StageAndMicroBatch> order_of_turns(const PipelineShape& shape, int rank, bool is_backward) {
    std::vector<StageAndMicroBatch> order;
    for (int first = 0; first < shape.micro_batches; first += shape.ranks)
        for (int turn = 0; turn < shape.chunks; ++turn) {
            const int chunk = is_backward ? shape.chunks - 1 - turn : turn;
            const int end = std::min(first + shape.ranks, shape.micro_batches);
            for (int micro_batch = first; micro_batch < end; ++micro_batch)
                order.push_back({chunk * shape.ranks + rank, micro_batch});
        }
    return order;
}

/// `warm_up` forwards, then forwards and backwards by turns, then the other backwards. If `weights_lag` is
/// not negative, the gradients of the weights come apart, that many backwards late.
std::vector<PipelineAction> warm_up_and_alternate(const PipelineShape& shape, int rank, int warm_up,
                                                  int weights_lag) {
    const auto forwards = order_of_turns(shape, rank, false), backwards = order_of_turns(shape, rank, true);
    const std::size_t steps = forwards.size(), lag = static_cast<std::size_t>(std::max(weights_lag, 0));
    const bool apart = weights_lag >= 0;
    std::vector<PipelineAction> actions;
    actions.reserve(steps * 3);
    const auto add = [&](PipelineActionKind kind, const StageAndMicroBatch& what) {
        actions.push_back({kind, what.stage, what.micro_batch});
    };
    const std::size_t first_backward = std::min(static_cast<std::size_t>(warm_up), steps);
    for (std::size_t step = 0; step < steps + first_backward; ++step) {
        if (step < steps) add(PipelineActionKind::forward, forwards[step]);
        if (step < first_backward) continue;
        const std::size_t back = step - first_backward;
        add(apart ? PipelineActionKind::backward_input : PipelineActionKind::backward, backwards[back]);
        if (apart && back >= lag) add(PipelineActionKind::backward_weight, backwards[back - lag]);
    }
    if (apart)
        for (std::size_t back = steps - std::min(lag, steps); back < steps; ++back)
            add(PipelineActionKind::backward_weight, backwards[back]);
    return actions;
}

constexpr int weights_together = -1;

}  // namespace

PipelineSchedule one_forward_one_backward(int ranks, int micro_batches) {
    PipelineSchedule schedule{{ranks, 1, micro_batches}, {}};
    require_positive(schedule.shape);
    for (int rank = 0; rank < ranks; ++rank)
        schedule.ranks.push_back(
            warm_up_and_alternate(schedule.shape, rank, ranks - 1 - rank, weights_together));
    return schedule;
}

PipelineSchedule interleaved(int ranks, int chunks, int micro_batches) {
    PipelineSchedule schedule{{ranks, chunks, micro_batches}, {}};
    require_whole_turns(schedule.shape);
    // A backward comes back to a rank two steps later for every rank behind it.
    for (int rank = 0; rank < ranks; ++rank)
        schedule.ranks.push_back(warm_up_and_alternate(
            schedule.shape, rank, (chunks - 1) * ranks + 2 * (ranks - 1 - rank), weights_together));
    return schedule;
}

PipelineSchedule zero_bubble(int ranks, int chunks, int micro_batches) {
    PipelineSchedule schedule{{ranks, chunks, micro_batches}, {}};
    if (chunks > 1)
        require_whole_turns(schedule.shape);
    else
        require_positive(schedule.shape);
    for (int rank = 0; rank < ranks; ++rank)
        schedule.ranks.push_back(
            warm_up_and_alternate(schedule.shape, rank, (chunks - 1) * ranks + ranks - 1 - rank, rank));
    return schedule;
}

PipelineSchedule forward_only(int ranks, int chunks, int micro_batches) {
    PipelineSchedule schedule{{ranks, chunks, micro_batches}, {}};
    require_positive(schedule.shape);
    for (int rank = 0; rank < ranks; ++rank) {
        std::vector<PipelineAction>& actions = schedule.ranks.emplace_back();
        for (const auto& [stage, micro_batch] : order_of_turns(schedule.shape, rank, false))
            actions.push_back({PipelineActionKind::forward, stage, micro_batch});
    }
    return schedule;
}

}  // namespace drover
