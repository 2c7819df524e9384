#include "model/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/json_text.h"
#include "core/text_file.h"
#include "model/config_reader.h"
#include "model/families/family.h"

namespace drover {
namespace {

/// Larger sizes are typing errors, and their products would overflow.
constexpr std::int64_t largest_width = std::int64_t{1} << 24;
constexpr std::int64_t largest_count = std::int64_t{1} << 31;

RopeConfig::Type rope_type_from_name(const std::string& name, const ConfigReader& reader) {
    if (name == "default") return RopeConfig::Type::plain;
    if (name == "linear") return RopeConfig::Type::linear;
    if (name == "dynamic") return RopeConfig::Type::dynamic;
    if (name == "llama3") return RopeConfig::Type::llama3;
    if (name == "yarn") return RopeConfig::Type::yarn;
    reader.fail("rope_type", fmt::format("is \"{}\"", name), "Use default, linear, dynamic, llama3 or yarn.");
}

RopeConfig read_rope(const ConfigReader& reader, double default_theta) {
    RopeConfig rope;
    rope.theta = reader.positive_number("rope_theta", default_theta);
    std::string_view key = reader.has("rope_parameters") ? "rope_parameters" : "rope_scaling";
    if (!reader.has(key)) return rope;

    const ConfigReader scaling = reader.object(key);
    rope.theta = scaling.positive_number("rope_theta", rope.theta);
    const std::string_view type_key = scaling.has("rope_type") ? "rope_type" : "type";
    rope.type = rope_type_from_name(scaling.text(type_key, "default"), scaling);
    if (rope.type == RopeConfig::Type::plain) return rope;

    if (!scaling.has("factor"))
        scaling.fail("factor", "is missing", "Every scaled rope_type needs a factor of 1 or more.");
    rope.factor = scaling.positive_number("factor", 1);
    if (rope.factor < 1)
        scaling.fail("factor", fmt::format("is {}", rope.factor), "Give a factor of 1 or more.");
    rope.original_max_position_embeddings =
        scaling.integer("original_max_position_embeddings", 0, 0, largest_count);
    rope.low_frequency_factor = scaling.positive_number("low_freq_factor", 1);
    rope.high_frequency_factor = scaling.positive_number("high_freq_factor", 4);
    rope.beta_fast = scaling.positive_number("beta_fast", 32);
    rope.beta_slow = scaling.positive_number("beta_slow", 1);
    rope.mscale = scaling.number("mscale", 0);
    rope.mscale_all_dim = scaling.number("mscale_all_dim", 0);
    rope.attention_factor = scaling.number("attention_factor", 0);
    rope.truncate = scaling.boolean("truncate", true);
    if (rope.type == RopeConfig::Type::llama3) {
        if (rope.original_max_position_embeddings == 0)
            scaling.fail("original_max_position_embeddings", "is missing", "rope_type llama3 needs it.");
        if (rope.high_frequency_factor <= rope.low_frequency_factor)
            scaling.fail("high_freq_factor", "is not above low_freq_factor", "Llama 3.1 uses 4 and 1.");
    }
    return rope;
}

void check_heads(const ModelConfig& config, const ConfigReader& reader, bool head_dim_is_derived) {
    if (config.num_key_value_heads > config.num_attention_heads)
        reader.fail("num_key_value_heads",
                    fmt::format("is {}, more than num_attention_heads ({})", config.num_key_value_heads,
                                config.num_attention_heads),
                    "Every key/value head must serve at least one query head.");
    if (config.num_attention_heads % config.num_key_value_heads != 0)
        reader.fail("num_key_value_heads",
                    fmt::format("is {}, which does not divide num_attention_heads ({})",
                                config.num_key_value_heads, config.num_attention_heads),
                    "Every key/value head must serve the same number of query heads.");
    if (head_dim_is_derived && config.hidden_size % config.num_attention_heads != 0)
        reader.fail("num_attention_heads",
                    fmt::format("is {}, which does not divide hidden_size ({})", config.num_attention_heads,
                                config.hidden_size),
                    "Change one of them, or give head_dim.");
    if (config.head_dim % 2 != 0)
        reader.fail("head_dim", fmt::format("is {}, an odd number", config.head_dim),
                    "Rotary positions turn pairs of elements, so it must be even.");
}

void check_token_id(const ConfigReader& reader, std::string_view key, std::int64_t id,
                    std::int64_t vocab_size) {
    if (id >= vocab_size)
        reader.fail(key, fmt::format("is {}, but vocab_size is only {}", id, vocab_size),
                    "Raise vocab_size or change the token id.");
}

}  // namespace

ModelConfig ModelConfig::parse(std::string_view text, std::string_view where) {
    Json json = parse_json(text, where);
    const ConfigReader typed(json, where);
    const std::string type = typed.text("model_type", "llama");
    const Family* family = find_family(type);
    if (family == nullptr)
        typed.fail("model_type", fmt::format("is \"{}\"", type), known_families_text(type));
    ModelConfig config = family->defaults();
    config.json = std::move(json);
    const ConfigReader reader(config.json, where);
    config.vocab_size = reader.integer("vocab_size", config.vocab_size, 1, largest_count);
    config.hidden_size = reader.integer("hidden_size", config.hidden_size, 1, largest_width);
    config.intermediate_size =
        reader.integer("intermediate_size", config.intermediate_size, 1, largest_width);
    config.num_hidden_layers = reader.integer("num_hidden_layers", config.num_hidden_layers, 1, 1 << 16);
    config.num_attention_heads =
        reader.integer("num_attention_heads", config.num_attention_heads, 1, 1 << 16);
    const bool no_key_value_heads = config.num_key_value_heads == 0 || reader.is_null("num_key_value_heads");
    config.num_key_value_heads = reader.integer(
        "num_key_value_heads", no_key_value_heads ? config.num_attention_heads : config.num_key_value_heads,
        1, 1 << 16);
    const bool head_dim_is_derived = config.head_dim == 0 && !reader.has("head_dim");
    if (config.head_dim == 0)
        config.head_dim = std::max<std::int64_t>(1, config.hidden_size / config.num_attention_heads);
    config.head_dim = reader.integer("head_dim", config.head_dim, 1, 256);
    config.max_position_embeddings =
        reader.integer("max_position_embeddings", config.max_position_embeddings, 1, largest_count);
    check_heads(config, reader, head_dim_is_derived);

    const std::string activation = reader.text("hidden_act", "silu");
    if (activation != "silu" && activation != "swish")
        reader.fail("hidden_act", fmt::format("is \"{}\"", activation),
                    "The activation of these models is silu.");
    if (reader.number("attention_dropout", 0) != 0)
        reader.fail("attention_dropout", "is not 0", "Attention dropout is not supported; set it to 0.0.");
    config.initializer_range = reader.positive_number("initializer_range", config.initializer_range);
    config.rms_norm_eps = reader.positive_number("rms_norm_eps", config.rms_norm_eps);
    config.tie_word_embeddings = reader.boolean("tie_word_embeddings", false);
    family->read_options(reader, config);

    config.pad_token_id = reader.token_ids("pad_token_id", {-1}).at(0);
    config.bos_token_id =
        reader.is_null("bos_token_id") ? -1 : reader.token_ids("bos_token_id", {config.bos_token_id}).at(0);
    config.eos_token_ids = reader.is_null("eos_token_id")
                               ? std::vector<std::int64_t>()
                               : reader.token_ids("eos_token_id", config.eos_token_ids);
    if (reader.has("pad_token_id"))
        check_token_id(reader, "pad_token_id", config.pad_token_id, config.vocab_size);
    if (reader.has("bos_token_id"))
        check_token_id(reader, "bos_token_id", config.bos_token_id, config.vocab_size);
    if (reader.has("eos_token_id"))
        for (std::int64_t id : config.eos_token_ids)
            check_token_id(reader, "eos_token_id", id, config.vocab_size);

    config.rope = read_rope(reader, config.rope.theta);
    const std::string_view dtype_key = reader.has("dtype") ? "dtype" : "torch_dtype";
    if (reader.has(dtype_key))
        config.dtype =
            floating_dtype_from_name(reader.text(dtype_key, ""), fmt::format("{}: {}", where, dtype_key));
    return config;
}

ModelConfig ModelConfig::from_path(const std::filesystem::path& path) {
    const std::filesystem::path file = std::filesystem::is_directory(path) ? path / "config.json" : path;
    return parse(read_text_file(file), file.string());
}

void ModelConfig::resize_vocabulary(std::int64_t tokens) {
    require(tokens > vocab_size && rows_before_resize == 0, "a vocabulary is resized once, to more tokens");
    rows_before_resize = vocab_size;
    vocab_size = tokens;
    json["vocab_size"] = tokens;
}

void ModelConfig::separate_head() {
    if (!tie_word_embeddings) return;
    tie_word_embeddings = false;
    head_from_embedding = true;
    json["tie_word_embeddings"] = false;
}

}  // namespace drover
