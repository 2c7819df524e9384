#pragma once

#include <string>

#include "train/trainer_callback.h"

namespace drover {

/// What a resumed run should know about settings that are not those of its checkpoint; empty when they agree.
/// `state` is the checkpoint's, whose intervals go on to count, as in transformers.
std::string resume_warning(const TrainerSettings& settings, const TrainerState& state);

/// Prints it on standard error.
class ResumeWarning final : public TrainerCallback {
  public:
    void on_train_begin(TrainerView& view) override;
};

}  // namespace drover
