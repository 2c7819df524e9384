#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "train/loop/trainer_callback.h"

namespace drover {

/// A prompt and what the model made of it.
struct EvalSample {
    std::string prompt;  ///< as the user wrote it
    std::string text;
};

/// Lets the model answer some prompts after each evaluation, and reports the answers: in the log, in a JSON
/// lines file {"step", "epoch", "prompt", "text"}, and wherever else `show` puts them.
class EvalSamples final : public TrainerCallback {
  public:
    /// Called by all ranks; the first one gets the samples, the others nothing.
    using Generate = std::function<std::vector<EvalSample>()>;
    /// What the first rank does with the text of all samples of a step.
    using Show = std::function<void(std::int64_t step, const std::string& text)>;

    /// Lines are added to `file`, whose folder is made if needed; none are written if it is empty. A file
    /// that cannot be written is told to `warn`, once, and the run continues.
    EvalSamples(Generate generate, std::filesystem::path file, Show show,
                std::function<void(const std::string&)> warn);

    void on_evaluate(TrainerView& view, const Json& metrics) override;

  private:
    void append(const TrainerState& state, const std::vector<EvalSample>& samples);

    Generate generate_;
    std::filesystem::path file_;
    Show show_;
    std::function<void(const std::string&)> warn_;
    bool failed_ = false;
};

}  // namespace drover
