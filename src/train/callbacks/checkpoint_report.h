#pragma once

#include "train/loop/trainer_callback.h"

namespace drover {

/// Reports on standard error when a checkpoint did not turn out as requested.
class CheckpointReport final : public TrainerCallback {
  public:
    void on_save_failed(TrainerView& view, const std::filesystem::path& folder,
                        const std::string& why) override;
    void on_rotation_failed(TrainerView& view, const std::string& why) override;
};

/// Differences between a run's settings and those of the checkpoint that it resumes from, worded like Hugging
/// Face's warning; empty when there are none.
std::string changed_settings(const TrainerSettings& settings, const TrainerState& fresh,
                             const TrainerState& saved);

/// A line for each of the named settings that differs from the checkpoint's training_args.json; empty when
/// there is none.
std::string changed_values(const std::vector<std::string>& names, const Json& now, const Json& saved);

}  // namespace drover
