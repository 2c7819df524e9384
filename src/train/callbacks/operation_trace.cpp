#include "train/callbacks/operation_trace.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <ctime>
#include <iterator>

#include "core/console.h"
#include "core/dtype.h"
#include "core/error.h"
#include "core/machine_identity.h"
#include "train/callbacks/chrome_trace.h"

namespace drover {
namespace {

enum Lane : int { spans_lane = 1, operations_lane = 2 };

std::string run_name() {
    const std::time_t now = std::time(nullptr);
    std::tm local{};
    localtime_r(&now, &local);
    char text[32];
    std::strftime(text, sizeof text, "%Y_%m_%d_%H_%M_%S", &local);
    return text;
}

void write_gzip(const std::filesystem::path& path, const std::string& text) {
    constexpr std::size_t piece = 1 << 20;
    const gzFile file = gzopen(path.c_str(), "wb");
    bool good = file != nullptr;
    for (std::size_t at = 0; good && at < text.size(); at += piece) {
        const auto bytes = static_cast<unsigned>(std::min(piece, text.size() - at));
        good = gzwrite(file, text.data() + at, bytes) == static_cast<int>(bytes);
    }
    if (file != nullptr && gzclose(file) != Z_OK) good = false;
    if (!good)
        throw Error(fmt::format("Cannot write the trace {}.", path.string()),
                    "Check PROFILE_LOGDIR and the free space.");
}

}  // namespace

void OperationTrace::begin(const OperationCost&, Stream stream) {
    if (operations_.empty()) first_start_ = watch_.seconds();
    running_since_ = backend_.mark(stream);
}

void OperationTrace::end(const OperationCost& cost, Stream stream) {
    operations_.push_back({cost, running_since_, backend_.mark(stream)});
}

void OperationTrace::begin_span(std::string name) {
    spans_.push_back({std::move(name), watch_.seconds(), 0});
}

void OperationTrace::end_span() {
    spans_.back().seconds = watch_.seconds() - spans_.back().start;
}

std::string OperationTrace::text() const {
    std::string events;
    const auto out = std::back_inserter(events);
    fmt::format_to(out, R"({{"displayTimeUnit":"ms","traceEvents":[
{{"ph":"M","pid":1,"name":"process_name","args":{{"name":"drover"}}}},
{{"ph":"M","pid":1,"tid":{},"name":"thread_name","args":{{"name":"steps"}}}},
{{"ph":"M","pid":1,"tid":{},"name":"thread_name","args":{{"name":"operations"}}}})",
                   int{spans_lane}, int{operations_lane});
    for (const Span& span : spans_)
        fmt::format_to(out,
                       ",\n{{\"ph\":\"X\",\"pid\":1,\"tid\":{},\"ts\":{:.3f},\"dur\":{:.3f},\"name\":{}}}",
                       int{spans_lane}, span.start * trace_units_per_second,
                       span.seconds * trace_units_per_second, Json(span.name).dump());
    for (const Event& event : operations_)
        fmt::format_to(
            out,
            ",\n{{\"ph\":\"X\",\"pid\":1,\"tid\":{},\"ts\":{:.3f},\"dur\":{:.3f},\"name\":{},\"args\":"
            "{{\"flops\":{:.0f},\"bytes\":{:.0f},\"arithmetic\":\"{}\"}}}}",
            int{operations_lane},
            (first_start_ + backend_.seconds_between(operations_.front().begin, event.begin)) *
                trace_units_per_second,
            backend_.seconds_between(event.begin, event.end) * trace_units_per_second,
            Json(std::string(event.cost.name)).dump(), event.cost.flops, event.cost.bytes,
            name_of(event.cost.arithmetic));
    events += "\n]}\n";
    return events;
}

StepTracer::~StepTracer() {
    if (tracing_) backend_.observe(nullptr);
}

void StepTracer::on_epoch_begin(TrainerView&) {
    steps_in_epoch_ = 0;
}

void StepTracer::on_step_begin(TrainerView& view) {
    if (armed_) {
        armed_ = false;
        tracing_ = true;
        since_start_ = Stopwatch();
        backend_.observe(&trace_);
    }
    if (tracing_) trace_.begin_span(fmt::format("step {}", view.state.global_step + 1));
}

void StepTracer::on_step_end(TrainerView& view, const StepReport&) {
    const std::int64_t epoch = (view.state.global_step - 1) / view.plan.updates_per_epoch;
    armed_ = epoch == settings_.epoch && steps_in_epoch_ == settings_.step;
    ++steps_in_epoch_;
    if (!tracing_) return;
    trace_.end_span();
    if (since_start_.seconds() >= settings_.seconds) finish();
}

void StepTracer::on_train_end(TrainerView&) {
    if (tracing_) finish();
}

void StepTracer::finish() {
    backend_.observe(nullptr);
    tracing_ = false;
    try {
        write();
    } catch (const std::exception& error) {
        print_log(stderr, "The run continues without its trace. {}\n", error.what());
    }
    backend_.forget_marks();
}

void StepTracer::write() {
    const std::filesystem::path folder = settings_.folder / "plugins" / "profile" / run_name();
    std::filesystem::create_directories(folder);
    const std::filesystem::path file = folder / (host_name() + ".trace.json.gz");
    write_gzip(file, trace_.text());
    written_ = file;
}

}  // namespace drover
