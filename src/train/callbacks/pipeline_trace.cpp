#include "train/callbacks/pipeline_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <limits>
#include <map>
#include <utility>

#include "core/console.h"
#include "core/text_file.h"
#include "train/profile/rank_clock.h"
#include "train/profile/trace_events.h"

namespace drover {
namespace {

constexpr std::int64_t first_traced = 2, last_traced = 4;

std::string_view kind_text(PipelineActionKind kind) {
    switch (kind) {
        case PipelineActionKind::forward:
            return "forward";
        case PipelineActionKind::backward:
            return "backward";
        case PipelineActionKind::backward_input:
            return "backward, input";
        case PipelineActionKind::backward_weight:
            return "backward, weights";
        default:
            bug("an action that is not computed");
    }
}

/// The computation whose result `action` reads, if another rank makes it.
std::optional<std::pair<bool, int>> source_of(const PipelineAction& action, int stages) {
    if (action.kind == PipelineActionKind::forward)
        return action.stage > 0 ? std::optional(std::pair(true, action.stage - 1)) : std::nullopt;
    if (action.kind == PipelineActionKind::backward_weight || action.stage + 1 == stages) return std::nullopt;
    return std::pair(false, action.stage + 1);
}

}  // namespace

double StepTimeline::bubble() const {
    // Every group of ranks that differ in pp alone is a pipeline.
    struct Pipeline {
        double begin = std::numeric_limits<double>::infinity(), end = 0, computed = 0;
        int ranks = 0;
    };
    std::map<std::array<int, 4>, Pipeline> pipelines;
    for (const RankTimeline& rank : ranks) {
        Pipeline& pipeline = pipelines[{rank.place.dcn, rank.place.data, rank.place.cp, rank.place.tp}];
        ++pipeline.ranks;
        for (const TimedAction& timed : rank.actions) {
            pipeline.begin = std::min(pipeline.begin, timed.start);
            pipeline.end = std::max(pipeline.end, timed.end);
            pipeline.computed += timed.end - timed.start;
        }
    }
    double computed = 0, all = 0;
    for (const auto& [place, pipeline] : pipelines) {
        computed += pipeline.computed;
        all += pipeline.ranks * (pipeline.end - pipeline.begin);
    }
    return all > 0 ? 1 - computed / all : 0;
}

std::vector<StageTimes> StepTimeline::stage_times(int stages) const {
    struct Mean {
        double sum = 0;
        int count = 0;
        double value() const { return count > 0 ? sum / count : 0; }
    };
    std::vector<std::map<PipelineActionKind, Mean>> means(static_cast<std::size_t>(stages));
    for (const RankTimeline& rank : ranks)
        for (const TimedAction& timed : rank.actions) {
            Mean& mean = means[static_cast<std::size_t>(timed.action.stage)][timed.action.kind];
            mean.sum += timed.end - timed.start;
            ++mean.count;
        }
    std::vector<StageTimes> times;
    for (auto& stage : means)
        times.push_back({.forward = stage[PipelineActionKind::forward].value(),
                         // A whole backward takes both times.
                         .backward_input = stage[PipelineActionKind::backward].value() +
                                           stage[PipelineActionKind::backward_input].value(),
                         .backward_weight = stage[PipelineActionKind::backward_weight].value()});
    return times;
}

std::string timeline_text(const std::vector<StepTimeline>& steps, const MeshShape& shape) {
    std::string events;
    const auto out = std::back_inserter(events);
    events += "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[";
    const char* comma = "\n";
    double zero = std::numeric_limits<double>::infinity();
    for (const StepTimeline& step : steps)
        for (const RankTimeline& rank : step.ranks)
            for (const TimedAction& timed : rank.actions) zero = std::min(zero, timed.start);
    for (std::size_t r = 0; !steps.empty() && r < steps.front().ranks.size(); ++r) {
        const MeshPlace& place = steps.front().ranks[r].place;
        fmt::format_to(
            out,
            "{}{{\"ph\":\"M\",\"pid\":{},\"name\":\"process_name\",\"args\":{{\"name\":\"rank {}: pp "
            "{}, dcn {}, data {}, tp {}\"}}}}",
            comma, r, r, place.pp, place.dcn, place.data, place.tp);
        comma = ",\n";
    }
    int arrow = 0;
    for (const StepTimeline& step : steps) {
        int stages = 0;
        // Where and when a result is ready: by pipeline, direction, stage and micro-batch.
        std::map<std::array<int, 7>, std::pair<std::size_t, double>> results;
        const auto key = [](const MeshPlace& place, bool forward, int stage, int micro_batch) {
            return std::array<int, 7>{place.dcn, place.data, place.cp, place.tp, forward, stage, micro_batch};
        };
        for (std::size_t r = 0; r < step.ranks.size(); ++r)
            for (const TimedAction& timed : step.ranks[r].actions) {
                stages = std::max(stages, timed.action.stage + 1);
                if (timed.action.kind != PipelineActionKind::backward_weight)
                    results[key(step.ranks[r].place, timed.action.kind == PipelineActionKind::forward,
                                timed.action.stage, timed.action.micro_batch)] = {r, timed.end};
            }
        for (std::size_t r = 0; r < step.ranks.size(); ++r)
            for (const TimedAction& timed : step.ranks[r].actions) {
                const PipelineAction& action = timed.action;
                const double start = (timed.start - zero) * trace_units_per_second;
                fmt::format_to(
                    out,
                    "{}{{\"ph\":\"X\",\"pid\":{},\"tid\":0,\"ts\":{:.3f},\"dur\":{:.3f},\"name\":\"{}\","
                    "\"cat\":\"{}\",\"args\":{{\"update\":{},\"stage\":{},\"micro_batch\":{}}}}}",
                    comma, r, start, (timed.end - timed.start) * trace_units_per_second, to_text(action),
                    kind_text(action.kind), step.step, action.stage, action.micro_batch);
                comma = ",\n";
                const auto source = source_of(action, stages);
                if (!source) continue;
                const auto found =
                    results.find(key(step.ranks[r].place, source->first, source->second, action.micro_batch));
                if (found == results.end() || found->second.first == r) continue;
                ++arrow;
                const auto end_of_arrow = [&](const char* phase, std::size_t rank, double at) {
                    fmt::format_to(out,
                                   ",\n{{\"ph\":\"{}\",\"pid\":{},\"tid\":0,\"ts\":{:.3f},\"id\":{},\"name\":"
                                   "\"message\",\"cat\":\"message\",\"bp\":\"e\"}}",
                                   phase, rank, at, arrow);
                };
                end_of_arrow("s", found->second.first,
                             (found->second.second - zero) * trace_units_per_second);
                end_of_arrow("f", r, start);
            }
    }
    double measured = 0;
    for (const StepTimeline& step : steps) measured += step.bubble() / static_cast<double>(steps.size());
    fmt::format_to(out, "\n],\"otherData\":{{\"pipeline_ranks\":{},\"measured_bubble\":{:.4f}}}}}\n",
                   shape.pp, measured);
    return events;
}

PipelineTrace::PipelineTrace(TrainEngine& engine, Backend& backend, const Mesh& mesh,
                             std::filesystem::path file, std::function<void(const std::string&)> say)
    : engine_(engine),
      backend_(backend),
      mesh_(mesh),
      file_(std::move(file)),
      say_(std::move(say)),
      log_(backend) {}

void PipelineTrace::on_step_begin(TrainerView& view) {
    const std::int64_t step = view.state.global_step + 1;
    if (finished_ || step < first_traced || step > last_traced) return;
    if (steps_.empty()) clock_ahead_ = compare_with_first(mesh_.everyone_on_host()).ahead;
    const Stream stream = backend_.main_stream();
    backend_.synchronize(stream);
    began_ = steady_seconds() - clock_ahead_;
    log_.clear(stream);
    engine_.observe_actions(&log_);
    observing_ = true;
}

void PipelineTrace::on_step_end(TrainerView& view, const StepReport&) {
    if (!std::exchange(observing_, false)) return;
    engine_.observe_actions(nullptr);
    steps_.push_back(gather(view.state.global_step, log_.actions()));
    say_bubble(steps_.back());
    if (view.state.global_step >= last_traced) finish();
}

void PipelineTrace::on_train_end(TrainerView&) {
    if (!finished_ && !steps_.empty()) finish();
}

StepTimeline PipelineTrace::gather(std::int64_t step, const std::vector<TimedAction>& own) const {
    constexpr std::int64_t numbers = 5;  // of an action
    Communicator& everyone = mesh_.everyone_on_host();
    auto most = static_cast<std::int64_t>(own.size());
    everyone.all_reduce({}, Tensor::of(&most, {1}), Reduction::max);
    constexpr double nothing = -1;
    std::vector<double> mine(static_cast<std::size_t>(most * numbers), nothing);
    for (std::size_t i = 0; i < own.size(); ++i) {
        const TimedAction& timed = own[i];
        const std::array<double, numbers> values = {
            static_cast<double>(timed.action.kind), static_cast<double>(timed.action.stage),
            static_cast<double>(timed.action.micro_batch), began_ + timed.start, began_ + timed.end};
        std::copy(values.begin(), values.end(), mine.begin() + static_cast<std::ptrdiff_t>(i) * numbers);
    }
    std::vector<double> all(mine.size() * static_cast<std::size_t>(everyone.size()));
    if (everyone.size() == 1)
        all = mine;
    else
        everyone.all_gather({}, Tensor::of(mine.data(), {most * numbers}),
                            Tensor::of(all.data(), {most * numbers * everyone.size()}));
    StepTimeline timeline{.step = step, .ranks = {}};
    for (int rank = 0; rank < everyone.size(); ++rank) {
        RankTimeline& one = timeline.ranks.emplace_back();
        one.place = place_of(mesh_.shape(), rank);
        for (std::int64_t i = 0; i < most; ++i) {
            const double* at = all.data() + (rank * most + i) * numbers;
            if (at[0] == nothing) break;
            one.actions.push_back(
                {.action = {.kind = static_cast<PipelineActionKind>(static_cast<int>(at[0])),
                            .stage = static_cast<int>(at[1]),
                            .micro_batch = static_cast<int>(at[2])},
                 .start = at[3],
                 .end = at[4]});
        }
    }
    return timeline;
}

void PipelineTrace::say_bubble(const StepTimeline& step) const {
    const PipelinePlan& plan = engine_.pipeline();
    if (plan.ranks() == 1) return;
    int micro_batches = 0;
    for (const TimedAction& timed : step.ranks.front().actions)
        micro_batches = std::max(micro_batches, timed.action.micro_batch + 1);
    const auto percent = [&](const std::vector<StageTimes>& times) {
        return 100 * plan.simulated(micro_batches, times).bubble_fraction();
    };
    say_(
        fmt::format("Update {}: the pipeline's bubble is {:.1f} % of the time; {:.1f} % with equal stages, "
                    "{:.1f} % with the measured times of the stages and no other delay.",
                    step.step, 100 * step.bubble(), percent({StageTimes{}}),
                    percent(step.stage_times(plan.ranks() * plan.chunks()))));
}

void PipelineTrace::finish() {
    finished_ = true;
    if (mesh_.rank() != 0) return;
    try {
        write_file_atomically(file_, timeline_text(steps_, mesh_.shape()));
        say_(fmt::format("The timeline of updates {} to {} is in {}.", steps_.front().step,
                         steps_.back().step, file_.string()));
    } catch (const std::exception& error) {
        print_log(stderr, "The run continues without its timeline. {}\n", error.what());
    }
}

}  // namespace drover
