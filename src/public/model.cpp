#include "drover/model.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/convert.h"
#include "core/error.h"
#include "generate/generator.h"
#include "model/params.h"
#include "model/saved_config.h"
#include "public/model_leaves.h"
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

    void load(const ModelLeaves& leaves) {
        for (const OwnedLeaf& leaf : model_.weights()) put(leaf, leaves.whole(*leaf.spec));
    }
    void set(const std::string& name, const std::vector<float>& values) {
        for (const OwnedLeaf& leaf : model_.weights())
            if (leaf.spec->name == name) put(leaf, values);
    }

    std::vector<TokenId> continuation(const std::vector<TokenId>& prompt, const GenerationOptions& options,
                                      const ModelLeaves& leaves) {
        return Generator(model_, *backend_)
            .generate(prompt, {.sampling = {.temperature = options.temperature,
                                            .top_k = options.top_k,
                                            .top_p = options.top_p,
                                            .seed = options.seed},
                               .max_new_tokens = options.max_new_tokens,
                               .ends = end_ids(parts_.current_config(), leaves.generation(),
                                               (parts_.folder / "generation_config.json").string())});
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

/// A model's weights in host memory, in the dtype to save them in.
class SavedModel {
  public:
    /// Collective if the weights are spread over processes; only a process that `keeps` them can save them.
    explicit SavedModel(const CausalLM::Parts& parts, bool keeps = true)
        : config_(parts.current_config()), leaves_(parts), dtype_(leaves_.saved_dtype()) {
        make_param_spec(config_).for_each_leaf([&](const LeafSpec& leaf) {
            const std::vector<float> values = leaves_.whole(leaf);
            if (!keeps) return;
            Kept& kept = kept_[leaf.name];
            kept.shape = leaf.shape;
            kept.bytes.resize(values.size() * size_of(dtype_));
            convert_elements(values.data(), DType::f32, kept.bytes.data(), dtype_, leaf.shape.numel());
        });
    }

    void save(const std::filesystem::path& folder) {
        std::vector<NamedTensor> tensors;
        for (const std::string& name : names_in_module_order(config_)) {
            Kept& kept = kept_.at(name);
            tensors.push_back({name, Tensor(kept.bytes.data(), dtype_, kept.shape)});
        }
        save_model_folder(folder, config_.saved_text(dtype_), tensors,
                          {.generation_config_json = generation_config_text(leaves_.generation())});
    }

  private:
    struct Kept {
        Shape shape;
        std::vector<std::byte> bytes;
    };

    const ModelConfig& config_;
    ModelLeaves leaves_;
    DType dtype_;
    std::map<std::string, Kept, std::less<>> kept_;
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

CausalLM CausalLM::from_config(const std::string& config, const ConfigOptions& options) {
    Parts parts;
    const bool is_text = config.find_first_not_of(" \t\r\n") != std::string::npos &&
                         config[config.find_first_not_of(" \t\r\n")] == '{';
    parts.config_name = is_text ? "config of the program" : config;
    parts.config =
        is_text ? ModelConfig::parse(config, "The config given to from_config()")
                : ModelConfig::from_path(find_pretrained(config, "The config", {.parts = ModelParts::texts}));
    if (options.torch_dtype != "auto") floating_dtype_from_name(options.torch_dtype, "torch_dtype");
    parts.dtype = options.torch_dtype;
    parts.seed = options.seed;
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
        const ModelLeaves leaves(*parts_);
        TextModel model(*parts_, ids, options);
        model.load(leaves);
        return tokenizer.decode(model.continuation(ids, options, leaves));
    }
    // The processes gather the weights in the first one, which generates for all.
    std::string text;
    in_all_processes(fmt::format("generate(\"{}\")", prompt), [&] {
        const ProcessGroup& ranks = program_processes({}).group;
        std::optional<ModelLeaves> leaves;
        std::optional<TextModel> model;
        ranks.together([&] {
            leaves.emplace(*parts_);
            if (ranks.is_first()) model.emplace(*parts_, ids, options);
        });
        make_param_spec(trained->config()).for_each_leaf([&](const LeafSpec& leaf) {
            const std::vector<float> values = leaves->whole(leaf);
            if (model) model->set(leaf.name, values);
        });
        ranks.together([&] {
            if (model) text = tokenizer.decode(model->continuation(ids, options, *leaves));
        });
        text = ranks.from_first(text);
    });
    return text;
}

void CausalLM::save_pretrained(const std::string& folder) const {
    const std::shared_ptr<const TrainedWeights> trained = parts_->trained;
    if (!trained || !trained->are_spread()) {
        SavedModel(*parts_).save(folder);
        return;
    }
    in_all_processes(fmt::format("save_pretrained(\"{}\")", folder), [&] {
        const ProcessGroup& ranks = program_processes({}).group;
        ranks.together([&] { trained->check_there(); });
        SavedModel whole(*parts_, ranks.is_first());
        ranks.together([&] {
            if (ranks.is_first()) whole.save(folder);
        });
    });
}

}  // namespace drover::v1
