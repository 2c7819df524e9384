#include "args/argument_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <set>

#include "args/argument_name.h"
#include "args/argument_value.h"
#include "core/error.h"
#include "core/json_text.h"
#include "core/simple_yaml.h"
#include "core/text_file.h"

namespace drover {
namespace {

bool is_json(std::string_view name) {
    return name.ends_with(".json");
}

bool names_argument_file(std::string_view word) {
    return !word.starts_with('-') && (is_json(word) || word.ends_with(".yaml") || word.ends_with(".yml"));
}

/// Lines of the keys of the outermost object of valid JSON.
std::map<std::string, int, std::less<>> json_key_lines(std::string_view text) {
    std::map<std::string, int, std::less<>> lines;
    int line = 1, depth = 0;
    bool key_follows = false;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const char c = text[i];
        if (c == '\n') ++line;
        if (c == '{' || c == '[') ++depth;
        if (c == '}' || c == ']') --depth;
        if (depth == 1 && (c == '{' || c == ',')) key_follows = true;
        if (c != '"') continue;
        const std::size_t begin = i;
        for (++i; i < text.size() && text[i] != '"'; ++i)
            if (text[i] == '\\') ++i;
        if (depth == 1 && key_follows)
            lines[Json::parse(text.substr(begin, i + 1 - begin)).get<std::string>()] = line;
        key_follows = false;
    }
    return lines;
}

void require_utf8(std::string_view text, const std::string& name) {
    try {
        Json(text).dump();
    } catch (const Json::type_error&) {
        throw UsageError(fmt::format("{} is not UTF-8.", name), "Write it as UTF-8 text.");
    }
}

std::string place_of(const ArgumentFile& file, std::string_view key) {
    const auto line = file.lines.find(key);
    return line == file.lines.end() ? file.name : fmt::format("{}:{}", file.name, line->second);
}

/// Takes the variables out of a YAML file, as TRL's parser does.
void take_variables(ArgumentFile& file) {
    const auto env = file.values.find("env");
    if (env == file.values.end()) return;
    if (!env->is_object() && !env->is_null())
        throw UsageError(fmt::format("{}: env is not a list of variables.", place_of(file, "env")),
                         "Write them as NAME: value, indented below env.");
    for (const auto& [name, value] : env->items()) {
        if (name.empty() || name.find('=') != std::string::npos || value.is_structured())
            throw UsageError(fmt::format("{}: env: \"{}\" is no variable.", place_of(file, "env"), name),
                             "Write NAME: value, indented below env.");
        file.variables[name] = value.is_string() ? value.get<std::string>() : "";
    }
    file.values.erase("env");
}

/// The value of one key of a YAML file: its text, because the argument knows what it means (a version such
/// as 1.0 is no number), but objects for JSON arguments have the types that YAML gives.
Json yaml_value(const ArgumentTable& table, const std::string& key, const Json& text, const Json& typed) {
    if (typed.is_null()) return nullptr;
    const Argument* argument = argument_of_key(table, key);
    if (argument == nullptr) return text;
    const bool keeps_type = (argument->type == ArgumentType::json && typed.is_structured()) ||
                            (argument->is_boolean() && typed.is_boolean());
    return keeps_type ? typed : text;
}

/// Where YAML's null, or a structure, has a meaning of its own for `drover sft`.
void translate_for_sft(Json& values) {
    // In TRL no limit is null, here it is 0.
    if (values.contains("max_length") && values["max_length"].is_null()) values["max_length"] = "0";
    if (values.contains("datasets")) values["datasets"] = Json::array({"given"});
}

/// Takes `--config FILE` out of the words, as TRL's parser has it.
std::optional<std::string> take_config_flag(std::vector<std::string>& words) {
    const auto flag = std::find_if(words.begin(), words.end(), [](const std::string& word) {
        return word == "--config" || word.starts_with("--config=");
    });
    if (flag == words.end()) return std::nullopt;
    const bool joined = *flag != "--config";
    if (!joined && flag + 1 == words.end())
        throw UsageError("--config needs a value.", "Write the name of a YAML file after it.");
    const std::string name = joined ? flag->substr(9) : *(flag + 1);
    words.erase(flag, flag + (joined ? 1 : 2));
    return name;
}

ArgumentFile read_argument_text(const ArgumentTable& table, std::string_view text, const std::string& name) {
    ArgumentFile file{.name = name, .values = Json::object(), .lines = {}};
    if (is_json(name)) {
        file.values = parse_json(text, name);
        if (!file.values.is_object())
            throw UsageError(fmt::format("{} does not hold a JSON object.", name),
                             "Write the arguments as {\"name\": value, …}.");
        file.lines = json_key_lines(text);
        return file;
    }
    require_utf8(text, name);
    const SimpleYaml texts = read_simple_yaml(text, name);
    const Json typed = read_simple_yaml(text, name, 1, YamlScalars::typed).value;
    if (!texts.value.is_object() && !texts.value.is_null())
        throw UsageError(fmt::format("{} does not hold arguments.", name),
                         "Write one per line as name: value.");
    file.lines = texts.lines;
    for (const auto& [key, value] : texts.value.items())
        file.values[key] = key == "env" ? value : yaml_value(table, key, value, typed.at(key));
    take_variables(file);
    if (&table == &sft_table()) translate_for_sft(file.values);
    return file;
}

}  // namespace

ArgumentFile parse_argument_file(const ArgumentTable& table, std::string_view text, const std::string& name) {
    try {
        return read_argument_text(table, text, name);
    } catch (const Error& error) {  // the file is a part of the command line
        throw UsageError(error.cause(), error.remedy());
    }
}

std::optional<ArgumentFile> take_argument_file(const ArgumentTable& table, std::vector<std::string>& words) {
    std::vector<std::string> names;
    if (&table == &sft_table())
        while (const std::optional<std::string> name = take_config_flag(words)) names.push_back(*name);
    while (!words.empty() && names_argument_file(words.front())) {
        names.push_back(words.front());
        words.erase(words.begin());
    }
    if (names.empty()) return std::nullopt;
    if (names.size() > 1)
        throw UsageError(fmt::format("Two files of arguments are given, {} and {}.", names[0], names[1]),
                         "Give one, and the rest as flags.");
    return parse_argument_file(table, read_text_file(with_home(names[0])), names[0]);
}

void set_from_file(Arguments& arguments, const ArgumentFile& file) {
    std::set<const Argument*> seen;
    for (const auto& [key, value] : file.values.items()) {
        const std::string place = place_of(file, key);
        const Argument& argument = find_key_argument(arguments.table(), key, place);
        if (!seen.insert(&argument).second)
            throw UsageError(fmt::format("{}: {} is given twice, under two names.", place, argument.name),
                             "Remove one of them.");
        if (value.is_null()) continue;
        Json read = value_from_json(argument, value, fmt::format("{}: {}", place, key));
        if (read == default_value(argument)) continue;
        arguments.set(argument.name, std::move(read), {ArgumentSource::Kind::file, file.name});
    }
}

void set_variables(const ArgumentFile& file) {
    for (const auto& [name, value] : file.variables) setenv(name.c_str(), value.c_str(), 1);
}

}  // namespace drover
