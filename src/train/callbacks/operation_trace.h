#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "core/stopwatch.h"
#include "train/loop/trainer_callback.h"

namespace drover {

/// Records when operations ran, for trace viewers (Perfetto, chrome://tracing, TensorBoard's profile tab).
/// Names and spans use host times. Device times are shifted so that the start of the first operation matches.
class OperationTrace final : public OperationObserver {
  public:
    /// `backend` must outlive this object.
    explicit OperationTrace(Backend& backend) : backend_(backend) {}

    void begin(const OperationCost& cost, Stream stream) override;
    void end(const OperationCost& cost, Stream stream) override;

    /// A named stretch of time above the operations: a step, an evaluation.
    void begin_span(std::string name);
    void end_span();

    std::size_t operations() const { return operations_.size(); }
    /// Trace events as Chrome's trace viewer defines them. Waits until all operations are done.
    std::string text() const;

  private:
    struct Event {
        OperationCost cost;
        std::size_t begin, end;  // marks
    };
    struct Span {
        std::string name;
        double start, seconds;
    };

    Backend& backend_;
    Stopwatch watch_;
    double first_start_ = 0;  // of the first operation, host clock
    std::size_t running_since_ = 0;
    std::vector<Event> operations_;
    std::vector<Span> spans_;
};

/// Which steps are traced, from the variables PROFILE_EPOCH, PROFILE_STEP, PROFILE_DURATION_MS and
/// PROFILE_LOGDIR.
struct TraceSettings {
    std::int64_t epoch = 0;  ///< tracing begins after this step of this epoch, both counted from 0
    std::int64_t step = 0;
    double seconds = 20;  ///< tracing ends with the first step after this time
    std::filesystem::path folder;
};

/// Traces the operations of some steps and writes them to
/// <folder>/plugins/profile/<run>/<host>.trace.json.gz, where TensorBoard looks for it. If that cannot be
/// written, it reports so on standard error, and the run continues.
class StepTracer final : public TrainerCallback {
  public:
    /// `backend` must outlive this object and have no other observer while steps are traced.
    StepTracer(Backend& backend, TraceSettings settings)
        : backend_(backend), settings_(std::move(settings)), trace_(backend) {}
    ~StepTracer() override;

    void on_epoch_begin(TrainerView& view) override;
    void on_step_begin(TrainerView& view) override;
    void on_step_end(TrainerView& view, const StepReport& step) override;
    void on_train_end(TrainerView& view) override;

    /// The file; empty until something was written.
    const std::filesystem::path& written() const { return written_; }

  private:
    void finish();
    void write();

    Backend& backend_;
    TraceSettings settings_;
    std::int64_t steps_in_epoch_ = 0;
    bool armed_ = false, tracing_ = false;
    Stopwatch since_start_;
    OperationTrace trace_;
    std::filesystem::path written_;
};

}  // namespace drover
