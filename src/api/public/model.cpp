#include "drover/model.h"

#include <algorithm>

#include "api/find_model.h"
#include "api/public/parts.h"
#include "core/error.h"
#include "generate/generator.h"
#include "model/params.h"

namespace drover::v1 {

CausalLM CausalLM::from_pretrained(const std::string& model_id, const PretrainedOptions& options) {
    Parts parts;
    parts.folder = find_pretrained(model_id, "The model_id");
    parts.config = ModelConfig::from_path(parts.folder);
    if (options.torch_dtype != "auto") floating_dtype_from_name(options.torch_dtype, "torch_dtype");
    parts.dtype = options.torch_dtype;
    return CausalLM(std::make_shared<const Parts>(std::move(parts)));
}

std::string CausalLM::model_type() const {
    return parts_->config.model_type;
}

std::int64_t CausalLM::num_parameters() const {
    return make_param_spec(parts_->config).parameter_count();
}

std::int64_t CausalLM::vocab_size() const {
    return parts_->config.vocab_size;
}

std::string CausalLM::generate(const Tokenizer& tokenizer, const std::string& prompt,
                               const GenerationOptions& options) const {
    const std::vector<TokenId> ids = tokenizer(prompt);
    const auto length = static_cast<std::int64_t>(ids.size());
    const DType asked = parts_->dtype == "auto" ? parts_->config.dtype.value_or(DType::f32)
                                                : floating_dtype_from_name(parts_->dtype, "torch_dtype");
    const auto backend = make_cpu_backend();
    InferenceModel model(
        parts_->config,
        {.dtype = asked == DType::bf16 ? DType::bf16 : DType::f32,
         .capacity = std::min(length + options.max_new_tokens, parts_->config.max_position_embeddings),
         .new_tokens = std::max<std::int64_t>(length, 1)},
        *backend);
    model.allocate();
    load_weights(model, *backend, parts_->folder);
    const std::vector<TokenId> made = Generator(model, *backend)
                                          .generate(ids, {.sampling = {.temperature = options.temperature,
                                                                       .top_k = options.top_k,
                                                                       .top_p = options.top_p,
                                                                       .seed = options.seed},
                                                          .max_new_tokens = options.max_new_tokens,
                                                          .ends = end_ids(parts_->config, parts_->folder)});
    return tokenizer.decode(made);
}

}  // namespace drover::v1
