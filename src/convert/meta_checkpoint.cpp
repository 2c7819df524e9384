#include "convert/meta_checkpoint.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "core/json_text.h"
#include "io/safetensors_header.h"

namespace drover {
namespace {

namespace fs = std::filesystem;
using safetensors_detail::shape_text;

std::string part_name(std::size_t part) {
    return fmt::format("consolidated.{:02}.pth", part);
}

/// Names outside the layers, and inside them after "layers.N.".
constexpr std::pair<std::string_view, std::string_view> meta_names[] = {
    {"tok_embeddings.weight", "model.embed_tokens.weight"},
    {"norm.weight", "model.norm.weight"},
    {"output.weight", "lm_head.weight"},
    {"attention.wq.weight", "self_attn.q_proj.weight"},
    {"attention.wk.weight", "self_attn.k_proj.weight"},
    {"attention.wv.weight", "self_attn.v_proj.weight"},
    {"attention.wo.weight", "self_attn.o_proj.weight"},
    {"feed_forward.w1.weight", "mlp.gate_proj.weight"},
    {"feed_forward.w2.weight", "mlp.down_proj.weight"},
    {"feed_forward.w3.weight", "mlp.up_proj.weight"},
    {"attention_norm.weight", "input_layernorm.weight"},
    {"ffn_norm.weight", "post_attention_layernorm.weight"},
};

/// Hugging Face's name; empty for frequencies, which are computed.
std::string published_name(const std::string& name, const fs::path& folder) {
    if (name.ends_with("rope.freqs")) return {};
    const std::int64_t layer = layer_of(name);
    const std::string prefix = layer < 0 ? "" : fmt::format("layers.{}.", layer);
    for (const auto& [meta, published] : meta_names)
        if (name.starts_with(prefix) && std::string_view(name).substr(prefix.size()) == meta)
            return layer < 0 ? std::string(published) : fmt::format("model.{}{}", prefix, published);
    throw Error(fmt::format("{} has the tensor {}, which is not part of a Llama model.", folder.string(),
                            safetensors_detail::quoted_name(name)),
                "Only Llama's text models are converted.");
}

}  // namespace

bool MetaCheckpoint::is_one(const fs::path& folder) {
    return fs::exists(folder / params_file) && fs::exists(folder / part_name(0));
}

MetaCheckpoint::MetaCheckpoint(const fs::path& folder)
    : folder_(folder), params_(read_json_file(folder / params_file)) {
    if (!params_.is_object())
        throw Error(fmt::format("{} is not an object.", (folder / params_file).string()), "Fetch it again.");
    for (std::size_t part = 0; fs::exists(folder / part_name(part)); ++part)
        parts_.emplace_back(folder / part_name(part));
    for (std::size_t part = 0; part < parts_.size(); ++part)
        for (const SafetensorsEntry& entry : parts_[part].header().entries) {
            by_name_[entry.name].push_back(
                add_item(entry.name, entry.dtype, entry.shape, parts_[part].path()));
            part_of_.push_back(part);
        }
    constexpr std::string_view remedy = "Fetch all files of the model again.";
    for (const auto& [name, found] : by_name_) {
        if (found.size() != parts_.size())
            throw Error(fmt::format("{} has {} parts, and {} of them have the tensor {}.", folder.string(),
                                    parts_.size(), found.size(), name),
                        remedy);
        for (const std::size_t item : found)
            if (items()[item].shape != items()[found[0]].shape ||
                items()[item].dtype != items()[found[0]].dtype)
                throw Error(fmt::format("{}: {} is {} in one part and {} in another.", folder.string(), name,
                                        shape_text(items()[found[0]].shape), shape_text(items()[item].shape)),
                            remedy);
    }
    for (const char* needed :
         {"tok_embeddings.weight", "layers.0.attention.wq.weight", "layers.0.feed_forward.w1.weight"})
        if (!by_name_.contains(needed))
            throw Error(fmt::format("{} has no tensor {}.", folder.string(), needed),
                        "Only Llama's text models are converted.");
    std::vector<std::string> names;
    for (const auto& [name, found] : by_name_) names.push_back(name);
    if (const std::int64_t layers = count_layers(names, folder.string()); layers != parameter("n_layers"))
        throw Error(fmt::format("{} has {} layers, and its params.json says {}.", folder.string(), layers,
                                parameter("n_layers")),
                    remedy);
}

std::int64_t MetaCheckpoint::parameter(const char* key) const {
    const auto found = params_.find(key);
    if (found == params_.end() || !found->is_number_integer() || found->get<std::int64_t>() <= 0)
        throw Error(fmt::format("{} has no positive number \"{}\".", (folder_ / params_file).string(), key),
                    "Fetch it again.");
    return found->get<std::int64_t>();
}

double MetaCheckpoint::number(const char* key, double fallback) const {
    const auto found = params_.find(key);
    return found != params_.end() && found->is_number() ? found->get<double>() : fallback;
}

std::int64_t MetaCheckpoint::key_value_heads() const {
    return params_.contains("n_kv_heads") && !params_["n_kv_heads"].is_null() ? parameter("n_kv_heads")
                                                                              : parameter("n_heads");
}

std::vector<PlannedTensor> MetaCheckpoint::tensors() const {
    std::vector<PlannedTensor> joined;
    for (const auto& [name, found] : by_name_)
        if (const std::string published = published_name(name, folder_); !published.empty())
            join(published, found, joined);
    std::stable_sort(joined.begin(), joined.end(), [](const PlannedTensor& a, const PlannedTensor& b) {
        return comes_before(a.name, b.name);
    });
    return joined;
}

void MetaCheckpoint::join(const std::string& name, const std::vector<std::size_t>& parts,
                          std::vector<PlannedTensor>& joined) const {
    const Item& first = items()[parts[0]];
    const bool is_norm = name.ends_with("norm.weight");
    if (first.shape.size() != (is_norm ? 1u : 2u))
        throw Error(
            fmt::format("{}: {} has the shape {}.", folder_.string(), first.name, shape_text(first.shape)),
            "Only Llama's text models are converted.");
    if (name.ends_with("q_proj.weight"))
        return joined.push_back(join_heads(name, parts, parameter("n_heads")));
    if (name.ends_with("k_proj.weight")) return joined.push_back(join_heads(name, parts, key_value_heads()));
    TensorBuilder builder(name, first.dtype);
    // The embedding was cut by columns up to Llama 2, and by rows since.
    const bool by_columns = name.ends_with("o_proj.weight") || name.ends_with("down_proj.weight") ||
                            (name.ends_with("embed_tokens.weight") && first.columns() != parameter("dim"));
    if (is_norm) {
        builder.whole(parts[0], first);
    } else {
        for (const std::size_t item : parts)
            by_columns ? builder.append_columns(item, items()[item], 0, first.columns())
                       : builder.append_rows(item, items()[item], 0, first.shape[0]);
    }
    joined.push_back(builder.tensor());
}

/// Meta rotates neighbouring rows of a head together, Hugging Face rows that are half a head apart.
PlannedTensor MetaCheckpoint::join_heads(std::string name, const std::vector<std::size_t>& parts,
                                         std::int64_t heads) const {
    const std::int64_t head = parameter("dim") / parameter("n_heads");
    const Item& first = items()[parts[0]];
    const std::int64_t rows = first.shape[0];
    if (head % 2 != 0 || rows % head != 0 || rows * static_cast<std::int64_t>(parts.size()) != heads * head)
        throw Error(
            fmt::format("{}: {} has {} rows in each of {} parts, and params.json says {} heads of {} rows.",
                        folder_.string(), first.name, rows, parts.size(), heads, head),
            "Use the params.json that belongs to these weights.");
    TensorBuilder builder(std::move(name), first.dtype);
    for (const std::size_t item : parts)
        for (std::int64_t begin = 0; begin < rows; begin += head)
            for (const std::int64_t half : {0, 1})
                builder.append_every_second_row(item, items()[item], begin + half, head / 2);
    return builder.tensor();
}

Json MetaCheckpoint::config() const {
    const auto size_of_item = [&](const char* name, std::size_t dimension) {
        return items()[by_name_.at(name)[0]].shape.at(dimension);
    };
    const auto parts = static_cast<std::int64_t>(parts_.size());
    const std::int64_t hidden = parameter("dim");
    const bool embedding_by_columns = size_of_item("tok_embeddings.weight", 1) != hidden;
    const std::int64_t vocabulary =
        size_of_item("tok_embeddings.weight", 0) * (embedding_by_columns ? 1 : parts);
    const double theta = number("rope_theta", 10000.0), epsilon = number("norm_eps", 1e-5);
    const bool is_scaled = params_.contains("use_scaled_rope") && params_["use_scaled_rope"] == true,
               is_third = vocabulary > 100'000;
    const std::int64_t positions = is_scaled         ? 131'072
                                   : is_third        ? 8192
                                   : theta > 10000.0 ? 16'384
                                   : epsilon < 1e-5  ? 2048
                                                     : 4096;
    Json config = {{"architectures", {"LlamaForCausalLM"}},
                   {"bos_token_id", is_third ? 128'000 : 1},
                   {"dtype", name_of(items()[by_name_.at("tok_embeddings.weight")[0]].dtype)},
                   {"eos_token_id", is_third ? 128'001 : 2},
                   {"hidden_act", "silu"},
                   {"hidden_size", hidden},
                   {"intermediate_size", size_of_item("layers.0.feed_forward.w1.weight", 0) * parts},
                   {"max_position_embeddings", positions},
                   {"model_type", "llama"},
                   {"num_attention_heads", parameter("n_heads")},
                   {"num_hidden_layers", parameter("n_layers")},
                   {"num_key_value_heads", key_value_heads()},
                   {"rms_norm_eps", epsilon},
                   {"rope_theta", theta},
                   {"tie_word_embeddings", !by_name_.contains("output.weight")},
                   {"vocab_size", vocabulary}};
    if (is_scaled)
        config["rope_scaling"] = {{"factor", hidden <= 3072 ? 32.0 : 8.0},
                                  {"high_freq_factor", 4.0},
                                  {"low_freq_factor", 1.0},
                                  {"original_max_position_embeddings", 8192},
                                  {"rope_type", "llama3"}};
    return config;
}

StridedTensor MetaCheckpoint::view(std::size_t item) const {
    const TorchWeights& part = parts_[part_of_[item]];
    return part.view(*part.find(items()[item].name));
}

void MetaCheckpoint::verify(std::size_t item) const {
    const TorchWeights& part = parts_[part_of_[item]];
    part.verify(*part.find(items()[item].name));
}

void MetaCheckpoint::forget() const {
    for (const TorchWeights& part : parts_) part.forget();
}

std::vector<fs::path> MetaCheckpoint::files() const {
    std::vector<fs::path> paths;
    for (const TorchWeights& part : parts_) paths.push_back(part.path());
    return paths;
}

}  // namespace drover
