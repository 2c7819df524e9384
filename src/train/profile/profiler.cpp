#include "train/profile/profiler.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <iterator>
#include <utility>

#include "core/console.h"
#include "core/machine_identity.h"
#include "train/profile/rank_clock.h"

namespace drover {
namespace {

constexpr std::int64_t warm_up_steps = 2;

std::int64_t nanoseconds_since_1970() {
    using namespace std::chrono;
    return duration_cast<nanoseconds>(system_clock::now().time_since_epoch()).count();
}

std::int64_t local_seconds_east() {
    const std::time_t now = std::time(nullptr);
    std::tm local{};
    localtime_r(&now, &local);
    return local.tm_gmtoff;
}

}  // namespace

Profiler::Profiler(Backend& backend, const Mesh& mesh, ProfilerSettings settings, ObserveCollectives observe,
                   Say say)
    : backend_(backend),
      mesh_(mesh),
      settings_(std::move(settings)),
      observe_(std::move(observe)),
      say_(std::move(say)),
      device_(backend) {
    thread_.emplace(spans_, "main thread");
}

Profiler::~Profiler() {
    if (!profiling_) return;
    try {
        // Another rank may wait for this one to say why it fails.
        observe_(nullptr, UnderWay::left);
    } catch (const std::exception&) {
        // The run has failed and says so itself.
    }
}

double Profiler::now() const {
    return steady_seconds() + offset_;
}

double Profiler::on_clock(std::chrono::steady_clock::time_point time) const {
    const double seconds = std::chrono::duration<double>(time.time_since_epoch()).count() + offset_;
    return std::max(seconds, 0.0);
}

// ---------------------------------------------------------------------------------------------------------
// when

void Profiler::on_train_begin(TrainerView&) {
    say_not_written(prepare_profile_folder(settings_.folder, mesh_.everyone_on_host()));
}

bool Profiler::begins_here(const TrainerView& view) const {
    if (settings_.after) return armed_;
    const std::int64_t left = view.plan.max_steps - view.state.global_step;
    return steps_of_run_ == warm_up_steps || (steps_of_run_ < warm_up_steps && left == 1);
}

void Profiler::on_step_begin(TrainerView& view) {
    // Others may have read their marks after the profile ended.
    if (std::exchange(marks_are_left_, false)) backend_.forget_marks();
    if (!profiling_ && !finished_ && begins_here(view)) start();
    if (!profiling_) return;
    device_.synchronize([this] { return now(); });
    steps_.push_back({.number = view.state.global_step + 1, .begin = now()});
}

void Profiler::on_step_end(TrainerView&, const StepReport& step) {
    if (settings_.after)
        armed_ = step.epoch == settings_.after->epoch && step.step_in_epoch == settings_.after->step;
    ++steps_of_run_;
    if (!profiling_) return;
    steps_.back().end = now();
    if (ends_here()) finish();
}

/// The ranks' clocks and spans differ, so they decide together.
bool Profiler::ends_here() const {
    std::int64_t ends = since_start_.seconds() >= settings_.seconds || device_.size() > most_spans ||
                        (settings_.steps && std::ssize(steps_) >= *settings_.steps);
    mesh_.everyone_on_host().all_reduce({}, Tensor::of(&ends, {1}), Reduction::max);
    return ends != 0;
}

void Profiler::on_train_end(TrainerView&) {
    if (profiling_) finish();
    if (!finished_ && steps_of_run_ > 0)
        say_(settings_.after ? fmt::format("Nothing was profiled: training ended before step {} of epoch {}.",
                                           settings_.after->step, settings_.after->epoch)
                             : "Nothing was profiled: training ended within its first steps.");
    finished_ = true;
    thread_.reset();
}

// ---------------------------------------------------------------------------------------------------------
// what

void Profiler::start() {
    Communicator& everyone = mesh_.everyone_on_host();
    const ClockOffset clock = compare_with_first(everyone);
    clock_error_ = clock.error;
    // The first rank's clock when it begins is the profile's zero.
    double zero = steady_seconds();
    place_ = {
        .folder = settings_.folder, .zero = nanoseconds_since_1970(), .seconds_east = local_seconds_east()};
    everyone.broadcast({}, Tensor::of(&zero, {1}), 0);
    everyone.broadcast({}, Tensor::of(&place_.zero, {1}), 0);
    everyone.broadcast({}, Tensor::of(&place_.seconds_east, {1}), 0);
    offset_ = -clock.ahead - zero;
    since_start_ = Stopwatch();
    steps_.clear();
    {
        const std::lock_guard lock(mutex_);
        collectives_.clear();
    }
    profiling_ = true;
    device_.start();
    observe_(this, UnderWay::told);
    spans_->start();
}

void Profiler::done(const ObservedCollective& collective) {
    const bool message = collective.peer >= 0;
    std::string lane = collective.on_device || backend_.device() == Device::cpu ? "" : "host's ";
    lane += message ? fmt::format("messages {}, {}", collective.axis, name_of(collective.kind))
                    : fmt::format("collectives {}", collective.axis);
    ProfileSpan span{.name = fmt::format("{} {}", name_of(collective.kind), collective.axis),
                     .kind = ProfileSpan::Kind::collective,
                     .begin = on_clock(collective.begin),
                     .end = on_clock(collective.end),
                     .bytes = static_cast<double>(collective.sent_bytes),
                     .calls = collective.calls};
    const std::lock_guard lock(mutex_);
    ProfileLane& to = collectives_[lane];
    to.name = lane;
    to.on_device = collective.on_device;
    to.spans.push_back(std::move(span));
}

RankProfile Profiler::collect() {
    device_.stop();
    observe_(nullptr, UnderWay::told);
    RankProfile profile{.rank = mesh_.rank(),
                        .place = mesh_.place(),
                        .device = backend_.device(),
                        .machine = host_name(),
                        .clock_error = clock_error_,
                        .steps = std::exchange(steps_, {}),
                        .lanes = device_.take()};
    marks_are_left_ = true;
    const auto add = [&](ProfileLane lane) {
        for (ProfileLane& part : separate_overlaps(std::move(lane))) profile.lanes.push_back(std::move(part));
    };
    {
        const std::lock_guard lock(mutex_);
        for (auto& [name, lane] : collectives_) add(std::move(lane));
        collectives_.clear();
    }
    std::map<std::string, ProfileLane> threads;
    for (HostSpans::Span& span : spans_->stop()) {
        ProfileLane& lane = threads[span.thread];
        lane.name = span.thread;
        lane.spans.push_back({.name = std::move(span.name),
                              .kind = ProfileSpan::Kind::host,
                              .begin = on_clock(span.begin),
                              .end = on_clock(span.end)});
    }
    for (auto& [name, lane] : threads) add(std::move(lane));
    return profile;
}

/// A reason that was said when the run began is not said again.
void Profiler::say_not_written(const std::string& reason) {
    if (reason.empty() || reason == std::exchange(reason_said_, reason) || mesh_.rank() > 0) return;
    print_log(
        stderr,
        "The profile could not be written to {}: {}. The run continues. Give another --profile_logdir.\n",
        settings_.folder.string(), reason);
}

void Profiler::finish() {
    profiling_ = false;
    finished_ = true;
    profile_ = collect();
    const ProfileFiles files = write_profile(*profile_, place_, mesh_.everyone_on_host());
    if (files.error.empty() && mesh_.rank() == 0) written_ = files.for_viewers;
    say_not_written(files.error);
    std::string summary = profile_summary(*profile_);
    summary.pop_back();
    say_(summary);
}

}  // namespace drover
