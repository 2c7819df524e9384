#pragma once

#include <cstdio>
#include <deque>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "io/event_file.h"
#include "train/loop/trainer_callback.h"

namespace drover {

/// Sequences per second over the last ten updates or so, as neuronx-distributed's examples count: from one
/// record to the next, without the time that writing the record took.
class NxdThroughput {
  public:
    /// `sequences` are those of an update; a record comes every `interval` updates.
    NxdThroughput(std::int64_t sequences, std::int64_t interval)
        : sequences_(static_cast<double>(sequences * interval)),
          window_(static_cast<std::size_t>((10 + interval - 1) / interval)) {}

    void start(double now) { start_ = now; }
    /// The rate at a record made now. start() is to be called when the record is written.
    double record(double now);

    /// Records that a mean over the run leaves out.
    std::size_t window() const { return window_; }

  private:
    double sequences_;
    std::size_t window_;
    std::deque<double> seconds_;
    double sum_ = 0;
    double start_ = 0;
};

/// The name of the folder that run_llama_nxd.py makes in --tb_dir for a run that starts now.
std::string nxd_tensor_board_folder(const TrainerSettings& settings);

/// A results.json of neuronx-distributed's examples with `data` added under `key`. An existing text's first
/// object is extended; lists grow, and values of the same name are replaced. Error, naming the file, if the
/// text is not JSON.
std::string with_nxd_results(const std::string& existing, const std::string& key, const Json& data,
                             const std::string& file);

struct NxdRecordSettings {
    std::int64_t interval = 1;             ///< updates between records
    std::int64_t sequences = 1;            ///< of an update, over all replicas
    std::FILE* out = stdout;               ///< for the lines; null: none
    std::filesystem::path tensor_board{};  ///< folder for TensorBoard's file; empty: none
    std::filesystem::path metrics_file{};  ///< empty: none
    Json parameters{};                     ///< of the run, for that file
    std::function<double()> now;           ///< seconds; tests supply their own
};

/// The records of neuronx-distributed's run_llama_nxd.py: a line of the console, TensorBoard's scalars and
/// the file of results. Updates are numbered from 0, as there. Add it on the first rank only.
class NxdRecords final : public TrainerCallback {
  public:
    explicit NxdRecords(NxdRecordSettings settings);

    void on_train_begin(TrainerView& view) override;
    void on_step_end(TrainerView& view, const StepReport& step) override;
    void on_train_end(TrainerView& view) override;

    /// TensorBoard's file; empty when nothing was written.
    std::filesystem::path written() const { return file_ ? file_->path() : std::filesystem::path(); }

  private:
    void write_scalars(std::int64_t step, const StepReport& report, double throughput);
    void write_results(const std::string& key, const Json& data) const;

    NxdRecordSettings settings_;
    NxdThroughput throughput_;
    std::optional<EventFile> file_;
    bool failed_ = false;
    double began_ = 0;
    std::vector<double> throughputs_;
    std::optional<double> last_loss_;
};

}  // namespace drover
