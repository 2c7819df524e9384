#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "app/commands.h"
#include "app/training_command.h"
#include "args/argument_value.h"
#include "args/command.h"
#include "args/help_text.h"
#include "args/run_settings.h"
#include "args/sft_settings.h"
#include "core/console.h"
#include "core/json.h"
#include "data/datasets/dataset_card.h"
#include "run/launch_environment.h"

namespace drover {
namespace {

/// The arguments of a YAML file, as TRL's parser reads it.
struct ConfigFile {
    Json values;  ///< null: none is given
    std::string name;
};

/// Scalars of simple YAML are texts; those that mean nothing are null.
Json with_nulls(const Json& value) {
    if (value.is_string() && (value == "null" || value == "~" || value == "Null" || value == "NULL"))
        return nullptr;
    Json result = value;
    if (value.is_structured())
        for (Json& item : result) item = with_nulls(item);
    return result;
}

/// Takes `--config FILE` out of the words. The variables of its "env" are set in this process.
ConfigFile take_config_file(std::vector<std::string>& words) {
    const auto flag = std::find_if(words.begin(), words.end(), [](const std::string& word) {
        return word == "--config" || word.starts_with("--config=");
    });
    if (flag == words.end()) return {};
    const bool joined = *flag != "--config";
    if (!joined && flag + 1 == words.end())
        throw UsageError("--config needs a value.", "Write the name of a YAML file behind it.");
    ConfigFile file{.values = {}, .name = joined ? flag->substr(9) : *(flag + 1)};
    words.erase(flag, flag + (joined ? 1 : 2));
    file.values = with_nulls(parse_simple_yaml(read_text_file(with_home(file.name)), file.name, 1));
    if (!file.values.is_object())
        throw UsageError(fmt::format("{} does not hold arguments.", file.name),
                         "Write one per line as name: value.");
    // In TRL no limit is null, here it is 0.
    if (file.values.contains("max_length") && file.values["max_length"].is_null())
        file.values["max_length"] = "0";
    if (file.values.contains("datasets")) file.values["datasets"] = Json::array({"given"});
    if (const Json env = file.values.value("env", Json()); !env.is_null()) {
        if (!env.is_object())
            throw UsageError(fmt::format("{}: env is not a list of variables.", file.name),
                             "Write them as NAME: value, indented below env.");
        for (const auto& [name, value] : env.items())
            setenv(name.c_str(), value.is_string() ? value.get<std::string>().c_str() : "", 1);
    }
    file.values.erase("env");
    return file;
}

std::optional<RunSettings> read_sft_settings(std::vector<std::string> words,
                                             const LaunchEnvironment& launch) {
    const ConfigFile file = take_config_file(words);
    const RunArguments run = parse_sft_arguments(
        words, {.environment = read_environment(), .world_size = launch.processes}, file.values, file.name);
    if (!run.asks_for_help) return run_settings(run, run.arguments.flag("dry_run"));
    const ArgumentTable& table = sft_table();
    if (launch.rank == 0)
        write_result(run.arguments.flag("help_markdown") ? markdown_page(table) : help_text(table));
    return std::nullopt;
}

}  // namespace

void add_sft_command(const Command& app) {
    const Command command = app.add_command(
        "sft",
        "Fine-tunes a model on conversations, or prompts with completions, from a command line of TRL's "
        "sft.\n"
        "Example: drover sft --model_name_or_path Qwen/Qwen2-0.5B --dataset_name conversations.jsonl "
        "--packing --output_dir out");
    command.without_help();
    command.take_words();
    command.set_action([command] {
        const std::vector<std::string> words = command.words();
        run_training_command(
            "sft", words, [&](const LaunchEnvironment& launch) { return read_sft_settings(words, launch); });
    });
}

}  // namespace drover
