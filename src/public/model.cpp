#include "drover/model.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/convert.h"
#include "core/error.h"
#include "generate/generator.h"
#include "model/params.h"
#include "public/parts.h"
#include "run/model_source.h"
#include "run/program_processes.h"

namespace drover::v1 {
namespace {

/// A model in memory for one prompt.
class TextModel {
  public:
    TextModel(const CausalLM::Parts& parts, const std::vector<TokenId>& prompt,
              const GenerationOptions& options)
        : parts_(parts),
          backend_(make_cpu_backend()),
          model_(parts.current_config(), inference_options(parts, prompt, options), *backend_) {
        model_.allocate();
    }

    /// Loads the weights from the model's folder, or from a Trainer's result.
    void load() {
        if (!parts_.trained)
            load_weights(model_, *backend_, parts_.folder);
        else
            for (const OwnedLeaf& leaf : model_.weights())
                put(leaf, parts_.trained->whole_leaf(leaf.spec->name));
    }
    void set(const std::string& name, const std::vector<float>& values) {
        for (const OwnedLeaf& leaf : model_.weights())
            if (leaf.spec->name == name) put(leaf, values);
    }

    std::vector<TokenId> continuation(const std::vector<TokenId>& prompt, const GenerationOptions& options) {
        return Generator(model_, *backend_)
            .generate(prompt, {.sampling = {.temperature = options.temperature,
                                            .top_k = options.top_k,
                                            .top_p = options.top_p,
                                            .seed = options.seed},
                               .max_new_tokens = options.max_new_tokens,
                               .ends = parts_.trained ? parts_.trained->ends()
                                                      : end_ids(parts_.config, parts_.folder)});
    }

  private:
    static InferenceOptions inference_options(const CausalLM::Parts& parts,
                                              const std::vector<TokenId>& prompt,
                                              const GenerationOptions& options) {
        const ModelConfig& config = parts.current_config();
        const DType asked = parts.dtype == "auto" ? config.dtype.value_or(DType::f32)
                                                  : floating_dtype_from_name(parts.dtype, "torch_dtype");
        const auto length = static_cast<std::int64_t>(prompt.size());
        return {.dtype = asked == DType::bf16 ? DType::bf16 : DType::f32,
                .capacity = std::min(length + options.max_new_tokens, config.max_position_embeddings),
                .new_tokens = std::max<std::int64_t>(length, 1)};
    }
    void put(const OwnedLeaf& leaf, const std::vector<float>& values) {
        convert_elements(values.data(), DType::f32, leaf.param.raw(), leaf.param.dtype(), leaf.param.numel());
    }

    const CausalLM::Parts& parts_;
    std::unique_ptr<Backend> backend_;
    InferenceModel model_;
};

}  // namespace

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
    return make_param_spec(parts_->current_config()).parameter_count();
}

std::int64_t CausalLM::vocab_size() const {
    return parts_->current_config().vocab_size;
}

std::string CausalLM::generate(const Tokenizer& tokenizer, const std::string& prompt,
                               const GenerationOptions& options) const {
    const std::vector<TokenId> ids = tokenizer(prompt);
    const std::shared_ptr<const TrainedWeights> trained = parts_->trained;
    if (!trained || !trained->are_spread()) {
        TextModel model(*parts_, ids, options);
        model.load();
        return tokenizer.decode(model.continuation(ids, options));
    }
    // The processes gather the weights in the first one, which generates for all.
    std::string text;
    in_all_processes(fmt::format("generate(\"{}\")", prompt), [&] {
        const ProcessGroup& ranks = program_processes({}).group;
        std::optional<TextModel> model;
        ranks.together([&] {
            if (ranks.is_first()) model.emplace(*parts_, ids, options);
        });
        make_param_spec(trained->config()).for_each_leaf([&](const LeafSpec& leaf) {
            const std::vector<float> values = trained->whole_leaf(leaf.name);
            if (model) model->set(leaf.name, values);
        });
        ranks.together([&] {
            if (model) text = tokenizer.decode(model->continuation(ids, options));
        });
        text = ranks.from_first(text);
    });
    return text;
}

}  // namespace drover::v1
