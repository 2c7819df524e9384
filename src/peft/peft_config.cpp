#include "peft/peft_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <cmath>
#include <limits>

#include "core/error.h"
#include "core/lfs_pointer.h"
#include "core/python_json.h"
#include "core/text_file.h"
#include "model/config_reader.h"

namespace drover {
namespace {

constexpr std::int64_t most_rank = 1 << 20;

/// Every key that PEFT writes, with its default.
Json default_values() {
    return {{"alora_invocation_tokens", nullptr},
            {"alpha_pattern", Json::object()},
            {"arrow_config", nullptr},
            {"auto_mapping", nullptr},
            {"base_model_name_or_path", nullptr},
            {"bias", "none"},
            {"corda_config", nullptr},
            {"ensure_weight_tying", false},
            {"eva_config", nullptr},
            {"exclude_modules", nullptr},
            {"fan_in_fan_out", false},
            {"inference_mode", true},
            {"init_lora_weights", true},
            {"kasa_config", nullptr},
            {"layer_replication", nullptr},
            {"layers_pattern", nullptr},
            {"layers_to_transform", nullptr},
            {"loftq_config", Json::object()},
            {"lora_alpha", 8},
            {"lora_bias", false},
            {"lora_dropout", 0.0},
            {"lora_ga_config", nullptr},
            {"megatron_config", nullptr},
            {"megatron_core", "megatron.core"},
            {"modules_to_save", nullptr},
            {"monteclora_config", nullptr},
            {"peft_type", "LORA"},
            {"peft_version", peft_version},
            {"qalora_group_size", 16},
            {"r", 8},
            {"rank_pattern", Json::object()},
            {"revision", nullptr},
            {"target_modules", nullptr},
            {"target_parameters", nullptr},
            {"task_type", nullptr},
            {"trainable_token_indices", nullptr},
            {"use_bdlora", nullptr},
            {"use_dora", false},
            {"use_qalora", false},
            {"use_rslora", false},
            {"velora_config", nullptr}};
}

struct Unsupported {
    std::string_view key, meaning;
};

/// Kinds of LoRA that are asked for by a value other than null, false or the default.
constexpr std::array unsupported{
    Unsupported{"alora_invocation_tokens", "adapters that act only behind certain tokens (aLoRA)"},
    Unsupported{"arrow_config", "routing between adapters (Arrow)"},
    Unsupported{"ensure_weight_tying", "adapters of tied weights that are tied too"},
    Unsupported{"fan_in_fan_out", "weights that are stored transposed"},
    Unsupported{"kasa_config", "KaSA, which changes the base model's weights"},
    Unsupported{"layer_replication", "layers that are repeated"},
    Unsupported{"lora_bias", "biases in adapters"},
    Unsupported{"megatron_config", "layers of Megatron"},
    Unsupported{"monteclora_config", "MonteCLoRA"},
    Unsupported{"trainable_token_indices", "single rows of the embedding that are trained"},
    Unsupported{"use_bdlora", "block-diagonal adapters (BD-LoRA)"},
    Unsupported{"use_qalora", "quantised adapters (QALoRA)"},
    Unsupported{"velora_config", "VeLoRA"},
};

constexpr std::string_view plain_lora =
    "Plain LoRA is supported, with use_rslora, use_dora, rank_pattern, alpha_pattern and modules_to_save.";

bool is_set(const Json& value) {
    return !value.is_null() && value != Json(false) && value != Json::object() && value != Json::array();
}

/// Inits after which the base model's weights are others than those in its files.
bool changes_the_base(const std::string& init) {
    return init.starts_with("pissa") || init == "olora" || init == "corda" || init == "loftq" ||
           init == "lora_ga";
}

/// Reads and checks the keys of one file.
class PeftReader {
  public:
    PeftReader(const Json& values, std::string_view where)
        : values_(values), where_(where), reader_(values, where) {}

    void refuse_unsupported() const {
        if (const std::string type = reader_.text("peft_type", ""); type != "LORA")
            throw Error(fmt::format("{}: peft_type is {}.", where_,
                                    type.empty() ? "missing" : fmt::format("\"{}\"", type)),
                        "Only adapters of the type LORA can be used.");
        if (const std::string task = reader_.text("task_type", "CAUSAL_LM"); task != "CAUSAL_LM")
            throw Error(fmt::format("{}: task_type is \"{}\".", where_, task),
                        "Only language models are trained and run here, so it must be CAUSAL_LM.");
        if (const std::string bias = reader_.text("bias", "none"); bias != "none")
            throw Error(
                fmt::format("{}: bias is \"{}\", which trains the base model's biases.", where_, bias),
                "It must be \"none\".");
        for (const auto& [key, meaning] : unsupported)
            if (is_set(values_.at(std::string(key))))
                throw Error(fmt::format("{}: {} asks for {}.", where_, key, meaning), plain_lora);
        const Json& init = values_.at("init_lora_weights");
        if (init.is_boolean() || init == Json("gaussian") || init == Json("orthogonal") ||
            init == Json("eva"))
            return;
        if (!init.is_string())
            reader_.fail("init_lora_weights", fmt::format("is {}", init.dump()),
                         "It must be true, false or the name of a method.");
        if (changes_the_base(init.get<std::string>()))
            throw Error(
                fmt::format("{}: init_lora_weights is {}, which changes the base model's weights.", where_,
                            init.dump()),
                "Save the adapter as plain LoRA (PEFT's path_initial_model_for_weight_conversion), or "
                "merge it with PEFT.");
        throw Error(fmt::format("{}: init_lora_weights is {}, which is not known here.", where_, init.dump()),
                    plain_lora);
    }

    /// A regular expression, or a list of names.
    ModuleSelection selection(std::string_view key) const {
        const Json& value = values_.at(std::string(key));
        if (value.is_null()) return {};
        if (value.is_string()) return value.get<std::string>();
        return names(key);
    }

    std::vector<std::string> names(std::string_view key) const {
        const Json& value = values_.at(std::string(key));
        std::vector<std::string> result;
        if (value.is_null()) return result;
        if (!value.is_array()) fail_list(key, value);
        for (const Json& name : value) {
            if (!name.is_string() || name.get_ref<const std::string&>().empty()) fail_list(key, value);
            result.push_back(name.get<std::string>());
        }
        return result;
    }

    /// layers_pattern may be one name.
    std::vector<std::string> patterns() const {
        const Json& value = values_.at("layers_pattern");
        if (!value.is_string()) return names("layers_pattern");
        const auto pattern = value.get<std::string>();
        return pattern.empty() ? std::vector<std::string>{} : std::vector{pattern};
    }

    /// A number, a list of them, or (absent) all; PEFT takes an empty list for all, too.
    std::optional<std::vector<std::int64_t>> layers() const {
        const Json& value = values_.at("layers_to_transform");
        if (value.is_null() || value == Json::array()) return std::nullopt;
        std::vector<std::int64_t> result;
        const auto add = [&](const Json& layer) {
            if (!layer.is_number_integer())
                reader_.fail("layers_to_transform", fmt::format("is {}", value.dump()),
                             "It must be a layer's number or a list of them.");
            result.push_back(layer.get<std::int64_t>());
        };
        if (value.is_array())
            for (const Json& layer : value) add(layer);
        else
            add(value);
        return result;
    }

    template <class Number>
    std::vector<std::pair<std::string, Number>> pattern(std::string_view key, Number least,
                                                        Number most) const {
        const Json& value = values_.at(std::string(key));
        std::vector<std::pair<std::string, Number>> result;
        if (value.is_null()) return result;
        const ConfigReader members = reader_.object(key);
        for (const auto& [name, member] : value.items()) {
            Number number{};
            if constexpr (std::is_integral_v<Number>)
                number = members.integer(name, 0, least, most);
            else
                number = members.number(name, 0);
            if (!(number >= least) || !(number <= most))
                throw Error(fmt::format("{}: {} has {} for \"{}\".", where_, key, member.dump(), name),
                            fmt::format("It must be from {} to {}.", least, most));
            result.emplace_back(name, number);
        }
        return result;
    }

    const ConfigReader& reader() const { return reader_; }

  private:
    [[noreturn]] void fail_list(std::string_view key, const Json& value) const {
        reader_.fail(key, fmt::format("is {}", value.dump()), "It must be a list of names.");
    }

    const Json& values_;
    std::string_view where_;
    ConfigReader reader_;
};

}  // namespace

PeftConfig PeftConfig::parse(std::string_view text, std::string_view where, const PeftWarning& warn) {
    refuse_lfs_pointer(text, where);
    const Json values = parse_python_json(text, where);
    if (!values.is_object() || !values.contains("peft_type"))
        throw Error(fmt::format("{} has no peft_type, so it is no adapter's configuration.", where),
                    "Name the folder that PEFT saved, with its adapter_config.json.");
    return of(values, where, warn);
}

PeftConfig PeftConfig::of(const Json& given, std::string_view where, const PeftWarning& warn) {
    PeftConfig config;
    config.values = default_values();
    std::vector<std::string> unknown;
    for (const auto& [key, value] : given.items()) {
        if (config.values.contains(key))
            config.values[key] = value;
        else if (key != "runtime_config")
            unknown.push_back(key);
    }
    if (!unknown.empty() && warn)
        warn(fmt::format("{} has keys that PEFT {} does not know; they are ignored: {}.", where, peft_version,
                         fmt::join(unknown, ", ")));
    // Written by a run that trained; the version is that of the files that are written here.
    config.values["inference_mode"] = true;
    config.values["peft_version"] = peft_version;

    const PeftReader reader(config.values, where);
    reader.refuse_unsupported();
    const ConfigReader& keys = reader.reader();
    config.base_model = keys.text("base_model_name_or_path", "");
    config.revision = keys.text("revision", "");
    config.rank = keys.integer("r", 8, 1, most_rank);
    config.alpha = keys.number("lora_alpha", 8);
    config.dropout = keys.number("lora_dropout", 0);
    if (config.dropout < 0 || config.dropout >= 1)
        keys.fail("lora_dropout", fmt::format("is {}", config.dropout), "It must be from 0.0 to below 1.0.");
    config.rank_stabilized = keys.boolean("use_rslora", false);
    config.magnitudes = keys.boolean("use_dora", false);
    config.targets = reader.selection("target_modules");
    config.excluded = reader.selection("exclude_modules");
    config.target_parameters = reader.names("target_parameters");
    config.modules_to_save = reader.names("modules_to_save");
    config.layers = reader.layers();
    config.layers_patterns = reader.patterns();
    config.ranks = reader.pattern<std::int64_t>("rank_pattern", 1, most_rank);
    constexpr double most_alpha = 1e9;
    config.alphas = reader.pattern<double>("alpha_pattern", -most_alpha, most_alpha);

    if (std::holds_alternative<std::string>(config.targets) && config.layers)
        throw Error(
            fmt::format("{}: layers_to_transform is given, but target_modules is an expression.", where),
            "Name the modules in a list, or the layers in the expression.");
    if (!config.layers_patterns.empty() && !config.layers)
        throw Error(fmt::format("{}: layers_pattern is given without layers_to_transform.", where),
                    "Add the layers, or leave layers_pattern out.");
    return config;
}

PeftConfig PeftConfig::read(const std::filesystem::path& folder, const PeftWarning& warn) {
    const std::filesystem::path file = folder / adapter_config_file;
    return parse(read_text_file(file), file.string(), warn);
}

void PeftConfig::set_targets(std::vector<std::string> names) {
    values["target_modules"] = names;
    targets = std::move(names);
}

void PeftConfig::set_base_model(std::string name) {
    values["base_model_name_or_path"] = name.empty() ? Json() : Json(name);
    base_model = std::move(name);
}

std::string PeftConfig::text() const {
    return python_json(values, 2);
}

bool is_adapter_folder(const std::filesystem::path& folder) {
    std::error_code ignored;
    return std::filesystem::is_regular_file(folder / adapter_config_file, ignored);
}

}  // namespace drover
