#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "hub/upload.h"
#include "run/settings/run_settings.h"
#include "train/loop/trainer_callback.h"

namespace drover {

/// Uploads a run's files to the Hub as --push_to_hub asks: checkpoints in the background while training goes
/// on, and the output folder at the end. Only the first process has one.
class HubPush final : public TrainerCallback {
  public:
    using Warn = std::function<void(const std::string&)>;

    /// Makes the repository. HubError when there is no token, or it may not write there.
    HubPush(const PushSettings& settings, const std::filesystem::path& output_folder, Warn warn);
    /// Ends an upload that is under way.
    ~HubPush() override;

    /// Begins to upload the checkpoint's model, and the checkpoint where the strategy says so. Its files may
    /// be removed afterwards. A failure is a warning.
    void on_save(TrainerView& view, const std::filesystem::path& folder) override;

    /// Waits for earlier uploads, uploads the output folder without its checkpoints, and returns the commit's
    /// address, or that of the repository when nothing had changed. HubError when it fails.
    std::string push_output_folder();

    const std::string& id() const { return repository_.id; }

  private:
    struct Job {
        std::filesystem::path staging;  ///< links to the files, removed afterwards
        std::vector<UploadFile> files;
        std::string message;
    };

    void work();
    void add_files(Job& job, const std::filesystem::path& folder, const std::string& before,
                   bool model_only) const;

    PushSettings settings_;
    std::filesystem::path output_folder_;
    Warn warn_;
    HubClient client_;
    Repository repository_;
    std::atomic<bool> ended_{false};
    std::mutex access_;
    std::condition_variable changed_;
    std::deque<Job> jobs_;
    bool busy_ = false;
    std::thread thread_;
};

}  // namespace drover
