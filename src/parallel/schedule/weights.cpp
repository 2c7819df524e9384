#include "parallel/schedule/weights.h"

#include <algorithm>
#include <span>

#include "core/error.h"

namespace drover {
namespace {

/// For every action, the stages that compute in it and after it, the next first.
class NextStages {
  public:
    NextStages(const std::vector<PipelineAction>& actions, std::size_t chunks) : chunks_(chunks) {
        table_.resize(actions.size() * chunks);
        counts_.resize(actions.size());
        std::vector<int> order;
        for (std::size_t i = actions.size(); i-- > 0;) {
            if (is_computation(actions[i].kind)) {
                std::erase(order, actions[i].stage);
                order.insert(order.begin(), actions[i].stage);
            }
            std::copy(order.begin(), order.end(), table_.begin() + static_cast<std::ptrdiff_t>(i * chunks));
            counts_[i] = order.size();
        }
    }

    /// At most `most` of them.
    std::span<const int> at(std::size_t action, int most) const {
        return {table_.data() + action * chunks_, std::min(counts_[action], static_cast<std::size_t>(most))};
    }

  private:
    std::size_t chunks_;
    std::vector<int> table_;
    std::vector<std::size_t> counts_;
};

bool has_stage(std::span<const int> stages, int stage) {
    return std::find(stages.begin(), stages.end(), stage) != stages.end();
}

std::vector<PipelineAction> gathered(const std::vector<PipelineAction>& actions, int chunks,
                                     const GatherPolicy& policy) {
    const NextStages next(actions, static_cast<std::size_t>(chunks));
    std::vector<int> whole;  // in the order of their gathers
    std::vector<PipelineAction> result;
    for (std::size_t i = 0; i < actions.size(); ++i) {
        if (!is_computation(actions[i].kind)) {
            result.push_back(actions[i]);
            continue;
        }
        const auto keep = next.at(i, policy.most_gathered);
        std::erase_if(whole, [&](int stage) {
            const bool leaves = !has_stage(keep, stage);
            if (leaves) result.push_back({PipelineActionKind::release, stage});
            return leaves;
        });
        for (const int stage : next.at(i, policy.look_ahead))
            if (!has_stage(whole, stage)) {
                whole.push_back(stage);
                result.push_back({PipelineActionKind::gather, stage});
            }
        result.push_back(actions[i]);
    }
    for (const int stage : whole) result.push_back({PipelineActionKind::release, stage});
    return result;
}

}  // namespace

PipelineSchedule with_gathers(const PipelineSchedule& schedule, const GatherPolicy& policy) {
    require(policy.look_ahead >= 1 && policy.look_ahead <= policy.most_gathered,
            "a look-ahead over more chunks than may be gathered");
    PipelineSchedule result{schedule.shape, {}};
    for (const auto& actions : schedule.ranks)
        result.ranks.push_back(gathered(actions, schedule.shape.chunks, policy));
    return result;
}

PipelineSchedule with_reductions(const PipelineSchedule& schedule) {
    PipelineSchedule result{schedule.shape, {}};
    std::vector<int> backwards(static_cast<std::size_t>(schedule.shape.stages()));
    for (const auto& actions : schedule.ranks) {
        auto& reduced = result.ranks.emplace_back();
        for (std::size_t i = 0; i < actions.size(); ++i) {
            const auto [kind, stage, micro_batch] = actions[i];
            reduced.push_back(actions[i]);
            if (kind != PipelineActionKind::backward && kind != PipelineActionKind::backward_weight) continue;
            if (++backwards[static_cast<std::size_t>(stage)] < schedule.shape.micro_batches) continue;
            const PipelineAction send{PipelineActionKind::send_gradients, stage, micro_batch};
            if (i + 1 < actions.size() && actions[i + 1] == send) reduced.push_back(actions[++i]);
            reduced.push_back({PipelineActionKind::reduce_gradients, stage});
        }
    }
    return result;
}

}  // namespace drover
