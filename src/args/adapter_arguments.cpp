#include "args/adapter_arguments.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>

#include "args/common_settings.h"
#include "core/error.h"

namespace drover {
namespace {

/// What a new adapter is like.
constexpr std::array shape_flags{
    "lora_r",   "lora_alpha", "lora_dropout",         "lora_target_modules", "lora_target_parameters",
    "use_dora", "use_rslora", "lora_modules_to_save",
};

/// Those that the user set to something else than their defaults. (A saved file of arguments sets all.)
std::vector<std::string> changed_shape(const Arguments& arguments) {
    const Json values = arguments.to_json(), defaults = Arguments(arguments.table()).to_json();
    std::vector<std::string> names;
    for (const char* name : shape_flags)
        if (arguments.given(name) && values.at(name) != defaults.at(name))
            names.push_back(fmt::format("--{}", name));
    return names;
}

}  // namespace

void imply_adapters(Arguments& arguments) {
    if (arguments.flag("peft_lora")) {
        arguments.imply("use_peft", true, "--peft_lora");
        arguments.imply("lora_r", 8, "--peft_lora");
        arguments.imply("lora_alpha", 32, "--peft_lora");
        arguments.imply("lora_dropout", 0.0, "--peft_lora");
    }
    if (arguments.has("adapter_name_or_path")) arguments.imply("use_peft", true, "--adapter_name_or_path");
    if (arguments.flag("use_peft")) return;
    if (const std::vector<std::string> names = changed_shape(arguments); !names.empty())
        arguments.explain(fmt::format("{}: without --use_peft {} no effect; all weights are trained.",
                                      fmt::join(names, ", "), names.size() == 1 ? "it has" : "they have"));
}

void check_adapters(const Arguments& arguments) {
    for (const auto& [name, bits] : {std::pair{"load_in_4bit", 4}, std::pair{"load_in_8bit", 8}})
        if (arguments.flag(name))
            throw UsageError(
                fmt::format("--{} asks for weights in {} bits, which there are not here.", name, bits),
                "Leave it out; --dtype bfloat16 keeps the model's weights in two bytes each.");
    const bool adapts = arguments.flag("use_peft");
    for (const char* name : {"peft_lora", "adapter_name_or_path"}) {
        const bool asks =
            arguments.table().find(name)->is_boolean() ? arguments.flag(name) : arguments.has(name);
        if (asks && !adapts)
            throw UsageError(fmt::format("--{} and --use_peft no contradict each other.", name),
                             "Keep one of them.");
    }
    if (!adapts) return;
    if (const std::string& task = arguments.text("lora_task_type"); task != "CAUSAL_LM")
        throw UsageError(fmt::format("--lora_task_type is {}.", task),
                         "Only language models are trained here: it must be CAUSAL_LM.");
    if (arguments.number("lora_dropout") >= 1)
        throw UsageError("--lora_dropout is 1, so that adapters would get no input.", "Use a share below 1.");
    if (!arguments.has("adapter_name_or_path")) return;
    if (arguments.flag("peft_lora"))
        throw UsageError(
            "--peft_lora describes new adapters, and --adapter_name_or_path names some there are.",
            "Keep one of them.");
    if (const std::vector<std::string> names = changed_shape(arguments); !names.empty())
        throw UsageError(fmt::format("{} {} new adapters, but --adapter_name_or_path names some there are.",
                                     fmt::join(names, ", "), names.size() == 1 ? "describes" : "describe"),
                         "Leave it out: the folder's adapter_config.json says it.");
}

std::optional<LoraSettings> adapter_settings(const Arguments& arguments) {
    if (!arguments.flag("use_peft")) return std::nullopt;
    return LoraSettings{.path = text_or_empty(arguments, "adapter_name_or_path"),
                        .rank = arguments.integer("lora_r"),
                        .alpha = arguments.integer("lora_alpha"),
                        .dropout = arguments.number("lora_dropout"),
                        .target_modules = arguments.words("lora_target_modules"),
                        .target_parameters = arguments.words("lora_target_parameters"),
                        .modules_to_save = arguments.words("lora_modules_to_save"),
                        .rank_stabilized = arguments.flag("use_rslora"),
                        .magnitudes = arguments.flag("use_dora")};
}

}  // namespace drover
