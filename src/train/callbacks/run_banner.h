#pragma once

#include <string>

#include "train/loop/trainer_callback.h"

namespace drover {

/// The lines that Hugging Face logs before training ("***** Running training *****") and before an
/// evaluation. Each ends with a newline.
std::string training_banner(const TrainerView& view);
std::string evaluation_banner(const TrainerView& view, std::int64_t samples);

/// Prints the banners on standard error.
class RunBanner final : public TrainerCallback {
  public:
    void on_train_begin(TrainerView& view) override;
    void on_evaluate_begin(TrainerView& view, std::int64_t samples) override;
};

}  // namespace drover
