#pragma once

#include <string>
#include <utility>
#include <vector>

#include "train/state/trainer_state.h"

namespace drover {

struct TrainerSettings;

/// Facts for the model card that are not in the run's state.
struct ModelCardFacts {
    std::string name;          ///< of the model; usually the last part of output_dir
    std::string base_model{};  ///< name of the model that training started from; empty: from scratch
    std::vector<std::string> datasets{};  ///< empty: a text file of the user's
    std::string license{};                ///< empty: unknown
    std::string drover_version{};
    std::string optimizer{};     ///< one line: name and settings
    std::string precision{};     ///< empty: fp32
    std::string peft_version{};  ///< of adapters, in whose form the card then is; empty: a whole model
};

/// README.md with the same structure as Hugging Face's: front matter for the hub, origin, results,
/// hyperparameters, a table of evaluations, versions.
std::string model_card(const ModelCardFacts& facts, const TrainerSettings& settings,
                       const TrainerState& state);

}  // namespace drover
