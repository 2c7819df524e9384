#include "app/nxdt_yaml.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "core/error.h"
#include "core/json.h"
#include "core/simple_yaml.h"
#include "core/text_file.h"

namespace drover {
namespace {

std::int64_t positive_number(const Json& object, const char* key, const std::string& where) {
    const Json value = object.is_object() ? object.value(key, Json()) : Json();
    const std::string text = value.is_string() ? value.get<std::string>() : "";
    std::int64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || end != text.data() + text.size() || number <= 0)
        throw Error(
            fmt::format("{} has no positive number \"{}\".", where, key),
            "Give the configuration with which the model was trained, or --config with its config.json.");
    return number;
}

/// The lines of the section "model": the others may have what simple YAML does not.
std::string model_section(std::string_view text) {
    std::string section;
    bool is_inside = false;
    while (!text.empty()) {
        const std::size_t end = std::min(text.find('\n'), text.size());
        const std::string_view line = text.substr(0, end);
        if (!line.empty() && std::string_view(" \t\r#-").find(line.front()) == std::string_view::npos)
            is_inside = line.starts_with("model:");
        section.append(is_inside ? line : "").append("\n");  // lines keep their numbers
        text.remove_prefix(std::min(end + 1, text.size()));
    }
    return section;
}

}  // namespace

ModelConfig config_of_nxdt_yaml(const std::filesystem::path& file) {
    const Json yaml = parse_simple_yaml(model_section(read_text_file(file)), file.string(), 1);
    const Json model = yaml.is_object() ? yaml.value("model", Json()) : Json();
    const std::string where = fmt::format("{}, model,", file.string());
    ModelConfig config;
    config.num_hidden_layers = positive_number(model, "num_layers", where);
    config.hidden_size = positive_number(model, "hidden_size", where);
    config.num_attention_heads = positive_number(model, "num_attention_heads", where);
    config.num_key_value_heads = positive_number(model, "num_kv_heads", where);
    config.head_dim = config.hidden_size / config.num_attention_heads;
    config.intermediate_size =
        model.contains("ffn_hidden_size") ? positive_number(model, "ffn_hidden_size", where) : 0;
    if (model.contains("moe"))
        config.moe.experts = positive_number(model["moe"], "num_experts", fmt::format("{} moe", where));
    return config;
}

}  // namespace drover
