#pragma once

#include "train/trainer_callback.h"

namespace drover {

/// Says on standard error what became of checkpoints, where that is not what was asked for.
class CheckpointReport final : public TrainerCallback {
  public:
    void on_save_failed(TrainerView& view, const std::filesystem::path& folder,
                        const std::string& why) override;
    void on_rotation_failed(TrainerView& view, const std::string& why) override;
};

/// Differences between a run's settings and those of the checkpoint that it resumes from, as Hugging Face
/// warns of them; empty when there are none.
std::string changed_settings(const TrainerSettings& settings, const TrainerState& fresh,
                             const TrainerState& saved);

/// The other settings that are not what they were and change what is trained (training_args.json), a line
/// each; empty when there are none.
std::string changed_arguments(const Json& now, const Json& saved);

}  // namespace drover
