#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "comm/collective_observer.h"
#include "core/host_spans.h"
#include "core/stopwatch.h"
#include "train/loop/trainer_callback.h"
#include "train/profile/device_trace.h"
#include "train/profile/profile_files.h"
#include "train/profile/profile_summary.h"

namespace drover {

/// Which steps are profiled.
struct ProfilerSettings {
    /// Profiling begins after a step of an epoch, both counted from 0.
    struct After {
        std::int64_t epoch = 0;
        std::int64_t step = 0;
    };
    /// Absent: it begins before the third step of the run, when the first ones have warmed up, or before its
    /// last one if there are fewer.
    std::optional<After> after{};
    /// It ends after this many steps, or with the first step that ends after `seconds`.
    std::optional<std::int64_t> steps{};
    double seconds = 20;
    std::filesystem::path folder;
};

/// Records what all ranks do in some steps, and everything between them, and writes it for viewers (see
/// write_profile). Numbers do not change. If the files cannot be written, one line says so, and the run
/// continues.
class Profiler final : public TrainerCallback, private CollectiveObserver {
  public:
    /// Tells an observer of this rank's collectives from now on; null: no longer.
    using ObserveCollectives = std::function<void(CollectiveObserver*, UnderWay)>;
    using Say = std::function<void(const std::string&)>;

    /// `backend` and `mesh` must outlive this object, and the backend has no other observer while steps are
    /// profiled. `say` shows lines, on ranks that do.
    Profiler(Backend& backend, const Mesh& mesh, ProfilerSettings settings, ObserveCollectives observe,
             Say say);
    ~Profiler() override;

    void on_train_begin(TrainerView& view) override;
    void on_step_begin(TrainerView& view) override;
    void on_step_end(TrainerView& view, const StepReport& step) override;
    void on_train_end(TrainerView& view) override;

    /// The file for viewers, on the first rank; empty until it was written.
    const std::filesystem::path& written() const { return written_; }
    /// What this rank did, until the next profile; absent until one has ended.
    const std::optional<RankProfile>& profile() const { return profile_; }

  private:
    /// Of the spans that one run of the profiler keeps at most: it ends with the step in which they are more.
    static constexpr std::size_t most_spans = 500'000;

    void done(const ObservedCollective& collective) override;
    bool begins_here(const TrainerView& view) const;
    bool ends_here() const;
    void start();
    void finish();
    void say_not_written(const std::string& reason);
    RankProfile collect();
    double now() const;
    double on_clock(std::chrono::steady_clock::time_point time) const;

    Backend& backend_;
    const Mesh& mesh_;
    ProfilerSettings settings_;
    ObserveCollectives observe_;
    Say say_;

    std::int64_t steps_of_run_ = 0;
    bool armed_ = false, profiling_ = false, finished_ = false, marks_are_left_ = false;
    double offset_ = 0;  ///< what to add to this rank's steady clock for the profile's
    double clock_error_ = 0;
    Stopwatch since_start_;
    ProfilePlace place_;
    DeviceTrace device_;
    std::shared_ptr<HostSpans> spans_ = std::make_shared<HostSpans>();
    std::optional<HostThread> thread_;
    std::vector<ProfileStep> steps_;

    std::mutex mutex_;  // guards what follows
    std::map<std::string, ProfileLane> collectives_;

    std::optional<RankProfile> profile_;
    std::filesystem::path written_;
    std::string reason_said_;  ///< why the files cannot be written
};

}  // namespace drover
