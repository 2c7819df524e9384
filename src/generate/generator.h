#pragma once

#include <filesystem>
#include <functional>
#include <span>
#include <vector>

#include "core/json.h"
#include "generate/sampling.h"
#include "io/model_folder.h"
#include "model/inference_model.h"
#include "peft/adapter_weights.h"

namespace drover {

/// Reads a model folder or a .safetensors file into a model whose memory is allocated, converting to its
/// dtype. Error if a tensor is missing or has the wrong shape; unused tensors are in the report.
LoadReport load_weights(InferenceModel& model, Backend& backend, const std::filesystem::path& path);

/// The same, with adapters merged into the weights, one after the other. The model was made from their
/// merged_config().
LoadReport load_weights(InferenceModel& model, Backend& backend, const std::filesystem::path& path,
                        std::span<const AdapterWeights> adapters);

/// The dtype of the stored embedding, for configs that do not name the model's dtype.
DType stored_dtype(const std::filesystem::path& path);

/// The ids that end a text: those of generation_config.json next to the weights if it names any, otherwise
/// those of config.json. None if the file that decides has null.
std::vector<std::int32_t> end_ids(const ModelConfig& config, const std::filesystem::path& folder);
/// The same for the contents of that file; `place` is its name for messages.
std::vector<std::int32_t> end_ids(const ModelConfig& config, const Json& generation,
                                  const std::string& place);

struct GenerationSettings {
    SamplingSettings sampling;
    std::int64_t max_new_tokens = 128;
    std::vector<std::int32_t> ends;  ///< a text ends with any of these
    /// Begin after the tokens that the prompt shares with the last one and its continuation: a conversation
    /// goes on without being read again.
    bool keep_common_start = false;
    std::function<bool()> is_stopped{};  ///< asked before each token but the first; ends the text
};

/// Continues prompts, one at a time, using sequence 0 of a model.
class Generator {
  public:
    /// Both must outlive this object; the model must have its weights.
    Generator(InferenceModel& model, Backend& backend) : model_(model), backend_(backend) {}

    /// The new tokens, including the end token. `tell` is called with each as it is chosen. Stops when the
    /// cache is full. Error if the prompt is empty or leaves no room for a token.
    std::vector<std::int32_t> generate(std::span<const std::int32_t> prompt,
                                       const GenerationSettings& settings,
                                       const std::function<void(std::int32_t)>& tell = {});
    /// The logits [V] after the last prompt, from which the first new token was chosen.
    const std::vector<float>& prompt_logits() const { return prompt_logits_; }

  private:
    /// Runs ids at positions from `begin` on through the model, in pieces; returns the logits of the last
    /// one.
    std::vector<float> take_in(std::span<const std::int32_t> ids, std::int64_t begin);
    /// How many tokens at the beginning of `prompt` are in the cache; its last one is never among them.
    std::size_t known_tokens(std::span<const std::int32_t> prompt) const;

    InferenceModel& model_;
    Backend& backend_;
    std::vector<std::int32_t> cached_;  // the tokens whose keys and values are in the cache
    std::vector<float> prompt_logits_;
};

}  // namespace drover
