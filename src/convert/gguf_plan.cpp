#include "convert/gguf_plan.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>

#include "convert/leaf_name.h"
#include "convert/look_through.h"
#include "core/error.h"
#include "io/safetensors_header.h"
#include "model/rope_table.h"

namespace drover {
namespace {

using Item = TensorSource::Item;

constexpr std::string_view wrong_config = "Use the config.json that belongs to these weights.";

/// Modules and their names in GGUF, inside a layer and outside.
constexpr std::pair<std::string_view, std::string_view> gguf_modules[] = {
    {"self_attn.q_proj", "attn_q"},
    {"self_attn.k_proj", "attn_k"},
    {"self_attn.v_proj", "attn_v"},
    {"self_attn.o_proj", "attn_output"},
    {"self_attn.q_norm", "attn_q_norm"},
    {"self_attn.k_norm", "attn_k_norm"},
    {"mlp.gate_proj", "ffn_gate"},
    {"mlp.up_proj", "ffn_up"},
    {"mlp.down_proj", "ffn_down"},
    {"block_sparse_moe.gate", "ffn_gate_inp"},
    {"input_layernorm", "attn_norm"},
    {"post_attention_layernorm", "ffn_norm"},
    {"model.embed_tokens", "token_embd"},
    {"model.norm", "output_norm"},
    {"lm_head", "output"},
};
constexpr std::pair<std::string_view, std::string_view> expert_modules[] = {
    {"w1", "ffn_gate_exps"}, {"w2", "ffn_down_exps"}, {"w3", "ffn_up_exps"}};

/// llama.cpp's number for what most of a file's tensors are.
std::int64_t file_type_of(GgmlType type) {
    switch (type) {
        case GgmlType::f32:
            return 0;
        case GgmlType::f16:
            return 1;
        case GgmlType::q8_0:
            return 7;
        case GgmlType::bf16:
            return 32;
    }
    bug("a type of GGUF files that is not known");
}

GgmlType ggml_type_of(DType dtype) {
    return dtype == DType::f16 ? GgmlType::f16 : dtype == DType::bf16 ? GgmlType::bf16 : GgmlType::f32;
}

DType dtype_of_ggml(GgmlType type) {
    return type == GgmlType::f16 ? DType::f16 : type == GgmlType::bf16 ? DType::bf16 : DType::f32;
}

std::string architecture_of(const ModelConfig& config) {
    if (config.model_type == "qwen2" || config.model_type == "qwen3") return config.model_type;
    return "llama";  // Mistral and Mixtral too
}

/// By how much llama.cpp divides each frequency; empty unless they are scaled like Llama-3.1's.
std::vector<float> frequency_factors(const ModelConfig& config) {
    if (config.rope.type != RopeConfig::Type::llama3) return {};
    ModelConfig plain = config;
    plain.rope.type = RopeConfig::Type::plain;
    const std::vector<float> from = rope_frequencies(plain, 0).inverse,
                             to = rope_frequencies(config, 0).inverse;
    std::vector<float> factors;
    for (std::size_t i = 0; i < from.size(); ++i)
        factors.push_back(static_cast<float>(static_cast<double>(from[i]) / static_cast<double>(to[i])));
    return factors;
}

class GgufPlanner {
  public:
    GgufPlanner(const std::vector<PlannedTensor>& model, const ModelConfig& config,
                const GgufSettings& settings)
        : model_(model), config_(config), settings_(settings), architecture_(architecture_of(config)) {
        if (architecture_ == "qwen2" && config.query_columns() != config.hidden_size)
            throw Error(
                fmt::format("The query heads of this Qwen2 model have {} rows in all, and llama.cpp expects "
                            "hidden_size, {}.",
                            config.query_columns(), config.hidden_size),
                "Such a model cannot be written for llama.cpp.");
        if (config.rope.type == RopeConfig::Type::yarn && !config.rope.truncate)
            throw Error("The config's YaRN has \"truncate\": false, which llama.cpp does not have.",
                        "Such a model cannot be written for llama.cpp.");
    }

    ConversionPlan run(const GgufVocabulary& vocabulary) {
        check_layers();
        for (std::size_t i = 0; i < model_.size(); ++i) add(i);
        for (const Expert& expert : experts_) check_complete(expert);
        GgufHeader header;
        add_metadata(header);
        vocabulary.write_to(header);
        // What is not in the source is part of the bytes before the tensors: it has the first place.
        const std::vector<float> factors = frequency_factors(config_);
        if (!factors.empty())
            header.tensor("rope_freqs.weight", GgmlType::f32, {static_cast<std::int64_t>(factors.size())});
        std::vector<PlannedTensor> tensors;
        for (Planned& planned : planned_) {
            header.tensor(planned.tensor.name, planned.type, planned.shape);
            look_through(planned.tensor, model_);
            tensors.push_back(std::move(planned.tensor));
        }
        ConversionPlan plan;
        plan.files.push_back(
            gguf_file(std::string(gguf_name), header, factors.empty() ? 0 : 1, std::move(tensors)));
        plan.files[0].header.append(reinterpret_cast<const char*>(factors.data()),
                                    factors.size() * sizeof(float));
        return plan;
    }

  private:
    /// A tensor as the header names it. The planned one may be seen as a matrix of another shape.
    struct Planned {
        PlannedTensor tensor;
        GgmlType type;
        std::vector<std::int64_t> shape;
    };
    struct Expert {
        std::size_t planned;
        std::vector<bool> found;
    };

    void check_layers() const {
        std::vector<std::string> names;
        for (const PlannedTensor& tensor : model_) names.push_back(tensor.name);
        if (const std::int64_t found = count_layers(names, "The model"); found != config_.num_hidden_layers)
            throw Error(fmt::format("The model has {} layers, and its config says {}.", found,
                                    config_.num_hidden_layers),
                        wrong_config);
    }

    std::string key(std::string_view name) const { return fmt::format("{}.{}", architecture_, name); }

    void add_metadata(GgufHeader& header) const {
        header.text("general.architecture", architecture_);
        header.text("general.type", "model");
        header.text("general.name", settings_.name);
        header.number("general.file_type", file_type_of(main_type_.value_or(GgmlType::f32)));
        header.number("general.quantization_version", 2);
        header.number(key("block_count"), config_.num_hidden_layers);
        header.number(key("context_length"), config_.max_position_embeddings);
        header.number(key("embedding_length"), config_.hidden_size);
        header.number(key("feed_forward_length"), config_.intermediate_size);
        header.number(key("attention.head_count"), config_.num_attention_heads);
        header.number(key("attention.head_count_kv"), config_.num_key_value_heads);
        header.number(key("attention.key_length"), config_.head_dim);
        header.number(key("attention.value_length"), config_.head_dim);
        header.real(key("attention.layer_norm_rms_epsilon"), config_.rms_norm_eps);
        header.number(key("vocab_size"), config_.vocab_size);
        header.number(key("rope.dimension_count"), config_.head_dim);
        header.real(key("rope.freq_base"), config_.rope.theta);
        if (config_.has_experts()) {
            header.number(key("expert_count"), config_.moe.experts);
            header.number(key("expert_used_count"), config_.moe.chosen);
        }
        add_scaling(header);
    }

    void add_scaling(GgufHeader& header) const {
        const RopeConfig& rope = config_.rope;
        if (rope.type != RopeConfig::Type::linear && rope.type != RopeConfig::Type::yarn) return;
        const bool is_yarn = rope.type == RopeConfig::Type::yarn;
        header.text(key("rope.scaling.type"), is_yarn ? "yarn" : "linear");
        header.real(key("rope.scaling.factor"), rope.factor);
        if (!is_yarn) return;
        header.number(key("rope.scaling.original_context_length"), rope.original_max_position_embeddings > 0
                                                                       ? rope.original_max_position_embeddings
                                                                       : config_.max_position_embeddings);
        header.real(key("rope.scaling.yarn_beta_fast"), rope.beta_fast);
        header.real(key("rope.scaling.yarn_beta_slow"), rope.beta_slow);
        // llama.cpp multiplies cosines and sines by the usual factor, and by this.
        const double usual = 1 + 0.1 * std::log(rope.factor);
        header.real(key("rope.scaling.attn_factor"),
                    static_cast<double>(rope_frequencies(config_, 0).attention_factor) / usual);
    }

    void add(std::size_t index) {
        const Item item = model_[index].as_item();
        const LeafName leaf(item.name);
        if (leaf.module == "rotary_emb" || (leaf.module == "lm_head" && config_.tie_word_embeddings)) return;
        if (expert_of(item.name) >= 0) return add_expert(index, item);
        const std::int64_t layer = layer_of(item.name);
        const std::string prefix = layer < 0 ? "" : fmt::format("model.layers.{}.", layer);
        const std::string inside = item.name.starts_with(prefix) ? item.name.substr(prefix.size()) : "";
        for (const auto& [module, name] : gguf_modules)
            if (inside == fmt::format("{}.{}", module, leaf.field)) {
                std::string full =
                    fmt::format("{}{}.{}", layer < 0 ? "" : fmt::format("blk.{}.", layer), name, leaf.field);
                check_rows(item);
                if (architecture_ == "llama" && (leaf.module == "q_proj" || leaf.module == "k_proj"))
                    return add_turned(index, item, std::move(full));
                TensorBuilder builder(std::move(full), item.dtype);
                builder.whole(index, item);
                return push(builder.tensor(), item.shape, name == "ffn_gate_inp");
            }
        throw Error(
            fmt::format("The tensor {} has no place in llama.cpp's model.",
                        safetensors_detail::quoted_name(item.name)),
            "Check that the files are a model of the Llama, Mistral, Mixtral, Qwen2 or Qwen3 family.");
    }

    void check_rows(const Item& item) const {
        const std::string_view module = LeafName(item.name).module;
        const std::int64_t expected = module == "q_proj"                         ? config_.query_columns()
                                      : module == "k_proj" || module == "v_proj" ? config_.key_value_columns()
                                      : module == "embed_tokens" || module == "lm_head" ? config_.vocab_size
                                                                                        : -1;
        if (expected >= 0 && (item.shape.empty() || item.shape[0] != expected))
            throw Error(fmt::format("{} has the shape {}, and with this config it would have {} rows.",
                                    item.name, safetensors_detail::shape_text(item.shape), expected),
                        wrong_config);
    }

    /// llama.cpp rotates neighbouring rows of a head together, Hugging Face rows that are half a head apart.
    /// So rows i of both halves follow each other, which is one row of a matrix of twice the width.
    void add_turned(std::size_t index, const Item& item, std::string name) {
        const std::int64_t rows = item.shape[0], head = config_.head_dim, half = head / 2;
        const bool is_vector = item.shape.size() == 1;
        const std::int64_t columns = is_vector ? 1 : item.columns();
        PlannedTensor tensor{std::move(name), item.dtype, {rows / 2, 2 * columns}, {}};
        for (std::int64_t begin = 0; begin < rows; begin += half) {
            const std::int64_t to_row = begin / head * half, to_column = begin / half % 2 * columns;
            if (is_vector)
                tensor.blocks.push_back({.item = index,
                                         .row_count = 1,
                                         .column_begin = begin,
                                         .column_count = half,
                                         .transposed = true,
                                         .to_row = to_row,
                                         .to_column = to_column});
            else
                tensor.blocks.push_back({.item = index,
                                         .row_begin = begin,
                                         .row_count = half,
                                         .column_count = columns,
                                         .to_row = to_row,
                                         .to_column = to_column});
        }
        push(std::move(tensor), item.shape, false);
    }

    /// The matrices of all experts of a layer are one tensor.
    void add_expert(std::size_t index, const Item& item) {
        const LeafName leaf(item.name);
        const std::int64_t number = expert_of(item.name), count = config_.moe.experts;
        std::string name;
        for (const auto& [module, stacked] : expert_modules)
            if (leaf.module == module && leaf.is_weight())
                name = fmt::format("blk.{}.{}.weight", layer_of(item.name), stacked);
        if (name.empty() || number >= count || item.shape.size() != 2)
            throw Error(fmt::format("The config has {} experts, and {} of shape {} is not part of one.",
                                    count, item.name, safetensors_detail::shape_text(item.shape)),
                        wrong_config);
        auto found = expert_named_.find(name);
        if (found == expert_named_.end()) {
            found = expert_named_.emplace(name, experts_.size()).first;
            experts_.push_back({planned_.size(), std::vector<bool>(static_cast<std::size_t>(count))});
            const std::vector<std::int64_t> shape{count, item.shape[0], item.shape[1]};
            push({name, item.dtype, shape, {}}, shape, false);
        }
        Expert& expert = experts_[found->second];
        Planned& planned = planned_[expert.planned];
        if (planned.shape[1] != item.shape[0] || planned.shape[2] != item.shape[1])
            throw Error(fmt::format("{} does not have the shape of the layer's other experts, [{}, {}].",
                                    item.name, planned.shape[1], planned.shape[2]),
                        "Check that all files are of one model.");
        expert.found[static_cast<std::size_t>(number)] = true;
        planned.tensor.blocks.push_back({.item = index,
                                         .row_count = item.shape[0],
                                         .column_count = item.shape[1],
                                         .to_row = number * item.shape[0]});
    }

    void check_complete(const Expert& expert) const {
        for (std::size_t i = 0; i < expert.found.size(); ++i)
            if (!expert.found[i])
                throw Error(
                    fmt::format("Expert {} of {} is missing.", i, planned_[expert.planned].tensor.name),
                    "Check that all files of the checkpoint are there.");
    }

    void push(PlannedTensor tensor, const std::vector<std::int64_t>& shape, bool is_always_float32) {
        GgmlType type =
            settings_.q8_0 ? GgmlType::q8_0 : ggml_type_of(settings_.dtype.value_or(tensor.dtype));
        if (shape.size() < 2 || is_always_float32) {
            type = GgmlType::f32;
        } else {
            if (type == GgmlType::q8_0 && shape.back() % q8_0_block != 0) type = GgmlType::f16;
            if (!main_type_) main_type_ = settings_.q8_0 ? GgmlType::q8_0 : type;
        }
        tensor.is_q8_0 = type == GgmlType::q8_0;
        tensor.dtype = dtype_of_ggml(type);
        planned_.push_back({std::move(tensor), type, shape});
    }

    const std::vector<PlannedTensor>& model_;
    const ModelConfig& config_;
    const GgufSettings& settings_;
    std::string architecture_;
    std::vector<Planned> planned_;
    std::vector<Expert> experts_;
    std::map<std::string, std::size_t> expert_named_;  ///< into experts_
    std::optional<GgmlType> main_type_;                ///< of the first matrix
};

}  // namespace

ConversionPlan plan_gguf(std::vector<PlannedTensor> tensors, const ModelConfig& config,
                         const GgufVocabulary& vocabulary, const GgufSettings& settings) {
    return GgufPlanner(tensors, config, settings).run(vocabulary);
}

}  // namespace drover
