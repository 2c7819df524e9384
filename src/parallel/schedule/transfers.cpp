#include "parallel/schedule/transfers.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "core/error.h"

namespace drover {
namespace {

using Kind = PipelineActionKind;

bool gives_input_gradient(Kind kind) {
    return kind == Kind::backward || kind == Kind::backward_input;
}

/// The send of an action's result to the rank that reads it; nothing if no other rank does.
std::optional<PipelineAction> send_after(const PipelineAction& action, const PipelineShape& shape) {
    if (shape.ranks == 1) return std::nullopt;
    if (action.kind == Kind::forward && action.stage + 1 < shape.stages())
        return PipelineAction{Kind::send_activations, action.stage, action.micro_batch};
    if (gives_input_gradient(action.kind) && action.stage > 0)
        return PipelineAction{Kind::send_gradients, action.stage, action.micro_batch};
    return std::nullopt;
}

/// The receive that an action reads; nothing if it reads none.
std::optional<PipelineAction> receive_before(const PipelineAction& action, const PipelineShape& shape) {
    if (shape.ranks == 1) return std::nullopt;
    if (action.kind == Kind::forward && action.stage > 0)
        return PipelineAction{Kind::receive_activations, action.stage, action.micro_batch};
    if (gives_input_gradient(action.kind) && action.stage + 1 < shape.stages())
        return PipelineAction{Kind::receive_gradients, action.stage, action.micro_batch};
    return std::nullopt;
}

/// Walks through all ranks an action at a time, as far as their inputs allow.
class TransferPass {
  public:
    explicit TransferPass(const PipelineSchedule& schedule)
        : from_(schedule),
          shape_(schedule.shape),
          next_(schedule.ranks.size()),
          has_activations_(shape_.table_size()),
          has_gradients_(shape_.table_size()) {
        result_.shape = shape_;
        result_.ranks.resize(schedule.ranks.size());
    }

    PipelineSchedule run() {
        while (!finished()) {
            bool moved = false;
            for (std::size_t rank = 0; rank < next_.size(); ++rank) moved |= step(rank);
            if (!moved) stop();
        }
        return std::move(result_);
    }

  private:
    bool finished() const {
        for (std::size_t rank = 0; rank < next_.size(); ++rank)
            if (next_[rank] < from_.ranks[rank].size()) return false;
        return true;
    }

    bool ready(const PipelineAction& action) const {
        if (action.kind == Kind::forward && action.stage > 0)
            return has_activations_[shape_.index(action.stage, action.micro_batch)];
        if (gives_input_gradient(action.kind) && action.stage + 1 < shape_.stages())
            return has_gradients_[shape_.index(action.stage, action.micro_batch)];
        return true;
    }

    bool step(std::size_t rank) {
        if (next_[rank] == from_.ranks[rank].size()) return false;
        const PipelineAction& action = from_.ranks[rank][next_[rank]];
        if (!ready(action)) return false;
        ++next_[rank];
        result_.ranks[rank].push_back(action);
        if (action.kind == Kind::forward && action.stage + 1 < shape_.stages())
            has_activations_[shape_.index(action.stage + 1, action.micro_batch)] = true;
        if (gives_input_gradient(action.kind) && action.stage > 0)
            has_gradients_[shape_.index(action.stage - 1, action.micro_batch)] = true;
        if (const auto send = send_after(action, shape_)) {
            result_.ranks[rank].push_back(*send);
            const PipelineAction receive = receive_of(*send);
            result_.ranks[static_cast<std::size_t>(shape_.rank_of(receive.stage))].push_back(receive);
        }
        return true;
    }

    [[noreturn]] void stop() const {
        std::string stops;
        for (std::size_t rank = 0; rank < next_.size(); ++rank)
            if (next_[rank] < from_.ranks[rank].size())
                stops += fmt::format("{}rank {} at {}", stops.empty() ? "" : ", ", rank,
                                     to_text(from_.ranks[rank][next_[rank]]));
        throw Error(fmt::format("The ranks of the pipeline schedule wait for each other: {}.", stops),
                    "Put every computation after those that it needs.");
    }

    const PipelineSchedule& from_;
    PipelineShape shape_;
    PipelineSchedule result_;
    std::vector<std::size_t> next_;
    // By (stage, micro-batch): what a forward or a backward there reads has been computed.
    std::vector<bool> has_activations_, has_gradients_;
};

}  // namespace

PipelineAction receive_of(const PipelineAction& send) {
    return send.kind == Kind::send_activations
               ? PipelineAction{Kind::receive_activations, send.stage + 1, send.micro_batch}
               : PipelineAction{Kind::receive_gradients, send.stage - 1, send.micro_batch};
}

PipelineAction send_of(const PipelineAction& receive) {
    return receive.kind == Kind::receive_activations
               ? PipelineAction{Kind::send_activations, receive.stage - 1, receive.micro_batch}
               : PipelineAction{Kind::send_gradients, receive.stage + 1, receive.micro_batch};
}

PipelineSchedule with_transfers(const PipelineSchedule& schedule) {
    return TransferPass(schedule).run();
}

PipelineSchedule with_late_receives(const PipelineSchedule& schedule) {
    PipelineSchedule result{schedule.shape, {}};
    for (const auto& actions : schedule.ranks) {
        auto& late = result.ranks.emplace_back();
        late.reserve(actions.size());
        for (const PipelineAction& action : actions) {
            if (action.kind == Kind::receive_activations || action.kind == Kind::receive_gradients) continue;
            if (const auto receive = receive_before(action, schedule.shape)) late.push_back(*receive);
            late.push_back(action);
        }
    }
    return result;
}

UnreadMessages most_unread_messages(const PipelineSchedule& schedule) {
    UnreadMessages most;
    for (const auto& actions : schedule.ranks) {
        int activations = 0, gradients = 0, most_activations = 0, most_gradients = 0;
        for (const PipelineAction& action : actions) {
            if (action.kind == Kind::receive_activations)
                most_activations = std::max(most_activations, ++activations);
            if (action.kind == Kind::receive_gradients)
                most_gradients = std::max(most_gradients, ++gradients);
            if (const auto read = receive_before(action, schedule.shape))
                --(read->kind == Kind::receive_activations ? activations : gradients);
        }
        most.activations.push_back(most_activations);
        most.gradients.push_back(most_gradients);
    }
    return most;
}

}  // namespace drover
