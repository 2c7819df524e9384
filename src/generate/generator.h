#pragma once

#include <filesystem>
#include <functional>
#include <span>
#include <vector>

#include "core/json.h"
#include "generate/sampling.h"
#include "io/model_folder.h"
#include "model/inference_model.h"

namespace drover {

/// Reads a model folder or a .safetensors file into a model whose memory is allocated, converting to its
/// dtype. Error when a tensor is missing or has another shape; what is not used is in the report.
LoadReport load_weights(InferenceModel& model, Backend& backend, const std::filesystem::path& path);

/// The dtype of the stored embedding, when a config does not say in which one its model is.
DType stored_dtype(const std::filesystem::path& path);

/// The ids that end a text: those of generation_config.json beside the weights if it names any, else those of
/// config.json. None where the file that decides says null.
std::vector<std::int32_t> end_ids(const ModelConfig& config, const std::filesystem::path& folder);
/// The same for what is in that file; `place` is its name for messages.
std::vector<std::int32_t> end_ids(const ModelConfig& config, const Json& generation,
                                  const std::string& place);

struct GenerationSettings {
    SamplingSettings sampling;
    std::int64_t max_new_tokens = 128;
    std::vector<std::int32_t> ends;  ///< a text ends with any of these
};

/// Continues prompts, one at a time, in sequence 0 of a model.
class Generator {
  public:
    /// Both must outlive it; the model has its weights.
    Generator(InferenceModel& model, Backend& backend) : model_(model), backend_(backend) {}

    /// The new tokens, the end among them. `tell` is called with each as it is chosen. Stops where the cache
    /// is full. Error when the prompt is empty or does not leave room for one token.
    std::vector<std::int32_t> generate(std::span<const std::int32_t> prompt,
                                       const GenerationSettings& settings,
                                       const std::function<void(std::int32_t)>& tell = {});
    /// The logits [V] after the last prompt, from which the first new token was chosen.
    const std::vector<float>& prompt_logits() const { return prompt_logits_; }

  private:
    /// Takes ids at positions from `begin` on through the model, in pieces; the last one's logits.
    std::vector<float> take_in(std::span<const std::int32_t> ids, std::int64_t begin);

    InferenceModel& model_;
    Backend& backend_;
    std::vector<float> prompt_logits_;
};

}  // namespace drover
