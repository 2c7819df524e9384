#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include "generate/generator.h"
#include "model/adapters.h"
#include "run/model_source.h"
#include "train/callbacks/eval_samples.h"

namespace drover {

class TrainEngine;
struct SampleSettings;

/// Lets a model in training continue prompts: a copy of its weights for generation, in its own memory on the
/// first process.
class SampleGenerator {
  public:
    /// Reads the prompts: texts, or conversations that the chat template of `tokenizer_folder`, or of
    /// `template_path` if that is not empty, turns into text. With `texts_are_questions`, a plain text is
    /// what a user says, if there is a template. Error if a prompt is too long, or needs a template that is
    /// missing.
    SampleGenerator(const SampleSettings& settings, const ModelSource& model,
                    const std::filesystem::path& tokenizer_folder, const std::filesystem::path& template_path,
                    bool texts_are_questions);

    /// Plans the memory of the process that generates; `dtype` is what the model computes with.
    void plan(DType dtype, Backend& backend);
    const MemoryPlan& memory_plan() const { return model_->memory_plan(); }
    void allocate() { model_->allocate(); }
    /// Whether this process generates.
    bool generates() const { return model_ != nullptr; }

    /// The samples of the weights as they are now, in the process that generates. Collective if the weights
    /// are spread over processes. `adapters` are merged into the copy. Changes nothing in the engine.
    std::vector<EvalSample> generate(const TrainEngine& engine, const Adapters& adapters, Backend& backend,
                                     const Mesh& mesh);

  private:
    struct Prompt {
        std::string shown;
        std::vector<TokenId> ids;
    };

    void copy_weights(const TrainEngine& engine, const Adapters& adapters, Backend& backend,
                      const Mesh& mesh);

    GenerationSettings generation_;
    ModelConfig config_;
    std::shared_ptr<const Tokenizer> tokenizer_;
    std::vector<Prompt> prompts_;
    std::int64_t capacity_ = 0, longest_ = 0;
    std::unique_ptr<InferenceModel> model_;
};

}  // namespace drover
