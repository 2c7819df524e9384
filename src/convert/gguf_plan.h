#pragma once

#include "convert/conversion_plan.h"
#include "convert/gguf_vocabulary.h"
#include "model/config.h"

namespace drover {

inline constexpr std::string_view gguf_name = "model.gguf";

/// How a model is written for llama.cpp.
struct GgufSettings {
    std::string name;            ///< of the model, which llama.cpp shows
    std::optional<DType> dtype;  ///< of matrices; absent: their own
    bool q8_0 = false;           ///< matrices in Q8_0 in place of that
};

/// The file model.gguf with these tensors of a model. Norms, biases and routers are float32; a matrix whose
/// rows are no multiple of 32 is float16 where Q8_0 is asked for. A head that is the embedding is left out.
/// Error when the tensors do not fit the config, or llama.cpp has no such model.
ConversionPlan plan_gguf(std::vector<PlannedTensor> tensors, const ModelConfig& config,
                         const GgufVocabulary& vocabulary, const GgufSettings& settings);

}  // namespace drover
