#include "parallel/schedule/simulate.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "parallel/schedule/transfers.h"

namespace drover {
namespace {

using Kind = PipelineActionKind;
// Instead of a time.
constexpr double not_yet = -1;
constexpr double on_its_way = -2;  // a message whose receive has room for it

/// The messages of a kind that a rank sends; all of them go to the same rank. The first send belongs to the
/// first receive, and so on.
struct Link {
    struct Sent {
        PipelineAction send;
        double arrival;
    };
    struct Receive {
        std::size_t place;  // in the list of the rank that receives
        double start;
    };
    std::vector<Sent> sent;
    std::vector<Receive> receives;
    std::vector<double> received;  // when
};

/// What a rank waits for.
struct Awaited {
    int rank;
    PipelineAction action;
};

[[noreturn]] void refuse_to_run(std::string_view cause, std::string_view remedy) {
    throw Error(fmt::format("The pipeline schedule cannot run: {}.", cause), remedy);
}

class Simulation {
  public:
    Simulation(const PipelineSchedule& schedule, const PipelineTimes& times)
        : schedule_(schedule),
          shape_(schedule.shape),
          times_(times),
          has_transfers_(any_action([](const PipelineAction& a) { return is_transfer(a.kind); })),
          has_gathers_(any_action([](const PipelineAction& a) { return a.kind == Kind::gather; })),
          clock_(schedule.ranks.size()),
          collective_end_(schedule.ranks.size()),
          activations_(schedule.ranks.size()),
          gradients_(schedule.ranks.size()),
          forward_end_(shape_.table_size(), not_yet),
          input_end_(shape_.table_size(), not_yet),
          activations_received_(shape_.table_size(), not_yet),
          gradients_received_(shape_.table_size(), not_yet),
          is_whole_backward_(shape_.table_size()),
          gathered_(static_cast<std::size_t>(shape_.stages()), not_yet),
          reduced_(static_cast<std::size_t>(shape_.stages()), not_yet),
          weight_gradients_(static_cast<std::size_t>(shape_.stages())) {
        require(times.stages.size() == 1 || times.stages.size() == gathered_.size(),
                "times of other stages than the schedule has");
        require(times.buffers >= 1, "a pipeline without a buffer");
        result_.ranks.resize(schedule.ranks.size());
        for (const auto& actions : schedule.ranks)
            for (const PipelineAction& action : actions)
                if (action.kind == Kind::backward) is_whole_backward_[index(action)] = true;
    }

    PipelineTimeline run() {
        for (bool moved = true; moved;) {
            moved = false;
            for (int rank = 0; rank < shape_.ranks; ++rank)
                while (next_action(rank) && !step(rank, *next_action(rank))) moved = true;
        }
        for (int rank = 0; rank < shape_.ranks; ++rank)
            if (next_action(rank)) refuse_deadlock(rank);
        refuse_leftovers(activations_, Kind::receive_activations);
        refuse_leftovers(gradients_, Kind::receive_gradients);
        sum_up();
        return std::move(result_);
    }

  private:
    template <class Test>
    bool any_action(Test test) const {
        return std::any_of(schedule_.ranks.begin(), schedule_.ranks.end(), [&](const auto& actions) {
            return std::any_of(actions.begin(), actions.end(), test);
        });
    }

    static std::size_t at(int index) { return static_cast<std::size_t>(index); }
    std::size_t index(const PipelineAction& action) const {
        return shape_.index(action.stage, action.micro_batch);
    }
    const StageTimes& times_of(int stage) const {
        return times_.stages[times_.stages.size() == 1 ? 0 : at(stage)];
    }

    const PipelineAction* next_action(int rank) const {
        const std::size_t done = result_.ranks[at(rank)].size();
        return done < schedule_.ranks[at(rank)].size() ? &schedule_.ranks[at(rank)][done] : nullptr;
    }

    /// Does an action of a rank, or says what it waits for.
    std::optional<Awaited> step(int rank, const PipelineAction& action) {
        switch (action.kind) {
            case Kind::forward:
            case Kind::backward:
            case Kind::backward_input:
            case Kind::backward_weight:
                return compute(rank, action);
            case Kind::send_activations:
            case Kind::send_gradients:
                return send(rank, action);
            case Kind::receive_activations:
            case Kind::receive_gradients:
                return receive(rank, action);
            case Kind::wait_for_sent_activations:
            case Kind::wait_for_sent_gradients:
                return wait_for_sent(rank, action);
            case Kind::gather:
                gathered_[at(action.stage)] = collective(rank, action, times_of(action.stage).gather);
                break;
            case Kind::release:
                gathered_[at(action.stage)] = not_yet;
                finish(rank, action, clock_[at(rank)], clock_[at(rank)]);
                break;
            case Kind::reduce_gradients:
                if (weight_gradients_[at(action.stage)] < shape_.micro_batches)
                    refuse_to_run(
                        fmt::format("{} comes before the last backward of its stage", to_text(action)),
                        "Reduce the gradients of a stage after all its backwards.");
                reduced_[at(action.stage)] =
                    collective(rank, action, times_of(action.stage).reduce_gradients);
                break;
            case Kind::wait_for_reduction: {
                const double end = reduced_[at(action.stage)];
                if (end == not_yet) return Awaited{rank, {Kind::reduce_gradients, action.stage}};
                const double start = clock_[at(rank)];
                finish(rank, action, start, std::max(start, end));
                break;
            }
        }
        return std::nullopt;
    }

    void finish(int rank, const PipelineAction& action, double start, double end) {
        result_.ranks[at(rank)].push_back({action, start, end});
        clock_[at(rank)] = end;
    }

    /// Begins a gather or a reduction beside computation. Returns its end.
    double collective(int rank, const PipelineAction& action, double duration) {
        const double start = std::max(clock_[at(rank)], collective_end_[at(rank)]);
        collective_end_[at(rank)] = start + duration;
        result_.ranks[at(rank)].push_back({action, start, start + duration});
        return start + duration;
    }

    /// When what a computation reads is there, and what it waits for before that.
    struct Input {
        double time;
        Awaited from;
    };

    /// The result of `producer`, which `receive` brings here if another rank computes it.
    Input input_from(int rank, const PipelineAction& producer, const std::vector<double>& computed,
                     const PipelineAction& receive, const std::vector<double>& received) const {
        const int other = shape_.rank_of(producer.stage);
        if (other != rank && has_transfers_) {
            const double time = received[index(receive)];
            return {time, time == on_its_way ? Awaited{other, send_of(receive)} : Awaited{rank, receive}};
        }
        const double end = computed[index(producer)];
        return {end == not_yet || other == rank ? end : end + times_.transfer, {other, producer}};
    }

    Input input_of(int rank, const PipelineAction& action) const {
        const int stage = action.stage, micro_batch = action.micro_batch;
        if (action.kind == Kind::forward) {
            if (stage == 0) return {0, {}};
            return input_from(rank, {Kind::forward, stage - 1, micro_batch}, forward_end_,
                              {Kind::receive_activations, stage, micro_batch}, activations_received_);
        }
        if (action.kind == Kind::backward_weight)
            return {input_end_[index(action)], {rank, {Kind::backward_input, stage, micro_batch}}};
        if (stage + 1 == shape_.stages())
            return {forward_end_[index(action)], {rank, {Kind::forward, stage, micro_batch}}};
        return input_from(rank, {backward_kind(stage + 1, micro_batch), stage + 1, micro_batch}, input_end_,
                          {Kind::receive_gradients, stage, micro_batch}, gradients_received_);
    }

    /// How a stage computes the gradient of its input.
    Kind backward_kind(int stage, int micro_batch) const {
        return is_whole_backward_[shape_.index(stage, micro_batch)] ? Kind::backward : Kind::backward_input;
    }

    std::optional<Awaited> compute(int rank, const PipelineAction& action) {
        const Input input = input_of(rank, action);
        if (input.time < 0) return input.from;
        const double weights = gathered_[at(action.stage)];
        if (has_gathers_ && weights == not_yet)
            refuse_to_run(
                fmt::format("{} comes where the weights of its stage are not gathered", to_text(action)),
                "Gather the weights of a stage before it computes.");
        const StageTimes& times = times_of(action.stage);
        const double start = std::max({clock_[at(rank)], input.time, weights});
        double duration = 0;
        switch (action.kind) {
            case Kind::forward:
                duration = times.forward;
                forward_end_[index(action)] = start + duration;
                break;
            case Kind::backward:
                duration = times.backward_input + times.backward_weight;
                input_end_[index(action)] = start + duration;
                ++weight_gradients_[at(action.stage)];
                break;
            case Kind::backward_input:
                duration = times.backward_input;
                input_end_[index(action)] = start + duration;
                break;
            default:
                duration = times.backward_weight;
                ++weight_gradients_[at(action.stage)];
                break;
        }
        finish(rank, action, start, start + duration);
        return std::nullopt;
    }

    /// The messages of the kind of this send, receive or wait that `sender` sends.
    Link& link(const PipelineAction& action, int sender) {
        const bool carries_activations = action.kind == Kind::send_activations ||
                                         action.kind == Kind::receive_activations ||
                                         action.kind == Kind::wait_for_sent_activations;
        return (carries_activations ? activations_ : gradients_)[at(sender)];
    }

    void require_stage(const PipelineAction& transfer, int peer_stage) const {
        if (peer_stage < 0 || peer_stage >= shape_.stages())
            refuse_to_run(fmt::format("{} has no stage at its other end", to_text(transfer)),
                          "Let the first stage receive no activations, and the last no gradients.");
    }

    std::optional<Awaited> send(int rank, const PipelineAction& action) {
        const PipelineAction receive = receive_of(action);
        require_stage(action, receive.stage);
        const bool is_activations = action.kind == Kind::send_activations;
        if ((is_activations ? forward_end_ : input_end_)[index(action)] == not_yet)
            return Awaited{rank,
                           {is_activations ? Kind::forward : backward_kind(action.stage, action.micro_batch),
                            action.stage, action.micro_batch}};
        Link& messages = link(action, rank);
        double start = clock_[at(rank)];
        if (messages.sent.size() >= at(times_.buffers)) {
            const std::size_t earlier = messages.sent.size() - at(times_.buffers);
            if (earlier >= messages.received.size()) {
                const PipelineAction awaited = receive_of(messages.sent[earlier].send);
                return Awaited{shape_.rank_of(awaited.stage), awaited};
            }
            start = std::max(start, messages.received[earlier]);
        }
        const double link_free = messages.sent.empty() ? 0 : messages.sent.back().arrival;
        messages.sent.push_back({action, std::max(start, link_free) + times_.transfer});
        finish(rank, action, start, start);
        if (messages.sent.size() <= messages.receives.size()) deliver(messages);
        return std::nullopt;
    }

    std::optional<Awaited> receive(int rank, const PipelineAction& action) {
        const PipelineAction send = send_of(action);
        require_stage(action, send.stage);
        const int sender = shape_.rank_of(send.stage);
        Link& messages = link(action, sender);
        const bool is_there = messages.receives.size() < messages.sent.size();
        if (times_.receives == ReceiveRule::rank_waits && !is_there) return Awaited{sender, send};
        const double start = clock_[at(rank)];
        messages.receives.push_back({result_.ranks[at(rank)].size(), start});
        received_table(action)[index(action)] = on_its_way;
        finish(rank, action, start, start);
        if (is_there) deliver(messages);
        if (times_.receives == ReceiveRule::rank_waits) clock_[at(rank)] = messages.received.back();
        return std::nullopt;
    }

    /// Ends the next receive of these messages, which has both its ends.
    void deliver(Link& messages) {
        const Link::Sent& message = messages.sent[messages.received.size()];
        const Link::Receive& receive = messages.receives[messages.received.size()];
        const int rank = shape_.rank_of(receive_of(message.send).stage);
        TimedAction& timed = result_.ranks[at(rank)][receive.place];
        if (timed.action != receive_of(message.send))
            refuse_to_run(
                fmt::format("{} gets the message of {}", to_text(timed.action), to_text(message.send)),
                "Receive messages in the order in which the other rank sends them.");
        timed.end = std::max(receive.start, message.arrival);
        messages.received.push_back(timed.end);
        received_table(timed.action)[index(timed.action)] = timed.end;
    }

    std::vector<double>& received_table(const PipelineAction& receive) {
        return receive.kind == Kind::receive_activations ? activations_received_ : gradients_received_;
    }

    /// Every send needs its receive.
    void refuse_leftovers(const std::vector<Link>& links, Kind receives) const {
        for (int rank = 0; rank < shape_.ranks; ++rank) {
            const Link& messages = links[at(rank)];
            const std::size_t done = messages.received.size();
            const int receiver = receives == Kind::receive_activations
                                     ? shape_.rank_of(rank + 1)
                                     : shape_.rank_of(rank + shape_.ranks - 1);
            if (done < messages.sent.size())
                refuse_to_run(fmt::format("nobody receives {}", to_text(messages.sent[done].send)),
                              "Give every send its receive on the rank of the stage that reads it.");
            if (done < messages.receives.size())
                refuse_to_run(
                    fmt::format("nobody sends for {}",
                                to_text(result_.ranks[at(receiver)][messages.receives[done].place].action)),
                    "Give every receive its send on the rank of the stage that computes it.");
        }
    }

    std::optional<Awaited> wait_for_sent(int rank, const PipelineAction& action) {
        const PipelineAction send{
            action.kind == Kind::wait_for_sent_activations ? Kind::send_activations : Kind::send_gradients,
            action.stage, action.micro_batch};
        const Link& messages = link(action, rank);
        const auto sent = std::find_if(messages.sent.begin(), messages.sent.end(),
                                       [&](const Link::Sent& message) { return message.send == send; });
        if (sent == messages.sent.end()) return Awaited{rank, send};
        const auto number = static_cast<std::size_t>(sent - messages.sent.begin());
        if (number >= messages.received.size()) {
            const PipelineAction awaited = receive_of(send);
            return Awaited{shape_.rank_of(awaited.stage), awaited};
        }
        const double start = clock_[at(rank)];
        finish(rank, action, start, std::max(start, messages.received[number]));
        return std::nullopt;
    }

    /// Follows from rank to rank what each waits for, until a rank comes up again.
    [[noreturn]] void refuse_deadlock(int rank) {
        std::string chain;
        std::vector<bool> seen(schedule_.ranks.size());
        while (next_action(rank) && !seen[at(rank)]) {
            seen[at(rank)] = true;
            const std::optional<Awaited> awaited = step(rank, *next_action(rank));
            chain +=
                fmt::format("{}rank {} stops at {}, which waits for {} of rank {}", chain.empty() ? "" : "; ",
                            rank, to_text(*next_action(rank)), to_text(awaited->action), awaited->rank);
            rank = awaited->rank;
        }
        if (!next_action(rank)) chain += ", which has come to its end";
        refuse_to_run(chain, "Put every action after those that it needs, or give the ranks more buffers.");
    }

    void sum_up() {
        for (const auto& actions : result_.ranks)
            for (const TimedAction& timed : actions) result_.makespan = std::max(result_.makespan, timed.end);
        for (const auto& actions : result_.ranks) {
            double busy = 0;
            for (const TimedAction& timed : actions)
                if (is_computation(timed.action.kind)) busy += timed.end - timed.start;
            result_.bubble.push_back(result_.makespan - busy);
        }
    }

    const PipelineSchedule& schedule_;
    PipelineShape shape_;
    const PipelineTimes& times_;
    bool has_transfers_, has_gathers_;
    PipelineTimeline result_;

    // By rank.
    std::vector<double> clock_, collective_end_;
    std::vector<Link> activations_, gradients_;
    // By stage and micro-batch.
    std::vector<double> forward_end_, input_end_, activations_received_, gradients_received_;
    std::vector<bool> is_whole_backward_;
    // By stage.
    std::vector<double> gathered_, reduced_;
    std::vector<int> weight_gradients_;
};

}  // namespace

double PipelineTimeline::whole_bubble() const {
    return std::accumulate(bubble.begin(), bubble.end(), 0.0);
}

double PipelineTimeline::bubble_fraction() const {
    const double time = makespan * static_cast<double>(ranks.size());
    return time > 0 ? whole_bubble() / time : 0;
}

PipelineTimeline simulate(const PipelineSchedule& schedule, const PipelineTimes& times) {
    return Simulation(schedule, times).run();
}

}  // namespace drover
