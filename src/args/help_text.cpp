#include "args/help_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "args/argument_description.h"
#include "args/argument_table.h"
#include "args/argument_value.h"
#include "args/command_text.h"
#include "args/environment_table.h"
#include "core/error.h"
#include "core/words.h"

namespace drover {
namespace {

constexpr std::size_t help_indent = 6;
constexpr std::string_view all_topic = "all", environment_topic = "environment";

std::string wrapped(std::string_view text, std::size_t margin) {
    return wrapped_text(text, margin, help_columns);
}

std::string usage_of(const ArgumentTable& table) {
    std::string text;
    for (const std::string& form : split_words(command_text(table).usage, '\n'))
        text += fmt::format("{} drover {} {}\n", text.empty() ? "Usage:" : "      ", table.command(), form);
    return text;
}

std::string argument_lines(const ArgumentTable& table, const Argument& argument) {
    std::string head = fmt::format("--{} {}", argument.name, kind_text(argument));
    if (!argument.default_text.empty()) head += fmt::format(" (default: {})", argument.default_text);
    if (argument.standing != Standing::acts) head += fmt::format(" [{}]", standing_text(argument.standing));
    std::string lines = wrapped(head, 2) + wrapped(meaning_text(argument), help_indent);
    if (const std::string aliases = aliases_text(table, argument); !aliases.empty())
        lines += wrapped("Also " + aliases + ".", help_indent);
    if (argument.standing == Standing::explained) lines += wrapped(argument.note, help_indent);
    return lines;
}

std::string group_lines(const ArgumentTable& table, const ArgumentGroup& group) {
    std::string lines = fmt::format("{}\n{}", group.title, wrapped(group.introduction, 2));
    for (const Argument& argument : group.arguments)
        if (!argument.is_hidden) lines += argument_lines(table, argument);
    return lines;
}

std::string variable_lines(const EnvironmentVariable& variable) {
    std::string head(variable.name);
    if (variable.standing != Standing::acts) head += fmt::format(" [{}]", standing_text(variable.standing));
    std::string lines = wrapped(head, 2) + wrapped(variable.meaning, help_indent);
    if (!variable.note.empty()) lines += wrapped(variable.note, help_indent);
    return lines;
}

std::string environment_lines(const ArgumentTable& table) {
    std::string lines = "Environment variables\n";
    for (const EnvironmentVariable& variable : environment_table())
        if (variable.is_for(table.command())) lines += variable_lines(variable);
    return lines;
}

/// Of an argument that does not simply act.
std::string_view effect_sentence(Standing standing) {
    switch (standing) {
        case Standing::acts:
            return "";
        case Standing::parallel:
            return "when several processes train together";
        case Standing::explained:
            return "none; it is accepted, so that command lines that have it can be used";
    }
    return "";
}

/// Everything about one argument.
std::string argument_page(const ArgumentTable& table, const Argument& argument) {
    std::string page = fmt::format("--{}\n{}", argument.name, wrapped(argument.help, 2));
    if (!argument.note.empty()) page += wrapped(argument.note, 2);
    page += '\n';
    const auto line = [&](std::string_view label, std::string_view value) {
        if (value.empty()) return;
        std::string text = wrapped(value, 16);
        text.replace(2, label.size(), label);
        page += text;
    };
    std::string type = type_text(argument);
    if (argument.type == ArgumentType::boolean)
        type += fmt::format("; --{0} alone is yes, --no_{0} is no", argument.name);
    if (argument.type == ArgumentType::words) type += "; repeated flags add to the list";
    line("Type", type);
    line("Default", argument.default_text.empty() ? "unset" : argument.default_text);
    line("Also", aliases_text(table, argument));
    std::string variables;
    for (const EnvironmentVariable& variable : environment_table())
        if (variable.sets == argument.name && variable.is_for(table.command()))
            variables += fmt::format("{}{}", variables.empty() ? "" : ", ", variable.name);
    line("Environment", variables);
    line("Effect", effect_sentence(argument.standing));
    const ArgumentGroup& group = table.group_of(argument);
    line("Group", fmt::format("{}: drover {} --help {}", group.title, table.command(), group.name));
    return page;
}

/// The names of arguments that begin with `name`, or hold it.
std::vector<std::string> names_with(const ArgumentTable& table, std::string_view name, bool at_begin) {
    std::vector<std::string> names;
    for (const std::string& known : table.names()) {
        const std::size_t at = known.find(name);
        if (at == 0 || (!at_begin && at != std::string::npos)) names.push_back(known);
    }
    return names;
}

/// The argument of a whole name, alias or `no_` form; nullptr if there is none.
const Argument* named_argument(const ArgumentTable& table, std::string_view name) {
    if (const Argument* argument = table.find(table.first_name_of(name))) return argument;
    return name.starts_with("no_") ? table.find(table.first_name_of(name.substr(3))) : nullptr;
}

[[noreturn]] void refuse_topic(const ArgumentTable& table, std::string_view topic, const std::string& name) {
    std::vector<std::string> names = help_topics(table);
    names.insert(names.end(), table.names().begin(), table.names().end());
    std::vector<std::string> meant;
    if (const std::string nearest = nearest_name(name, names); !nearest.empty()) meant.push_back(nearest);
    if (meant.empty() && name.size() >= 3) meant = names_with(table, name, false);
    constexpr std::size_t most = 6;
    if (meant.size() > most) meant.resize(most);
    throw UsageError(
        fmt::format("`drover {}` has no argument and no group of arguments \"{}\".", table.command(), topic),
        meant.empty() ? fmt::format("`drover {0} --help` lists the groups, `drover {0} --help all` all "
                                    "arguments.",
                                    table.command())
                      : fmt::format("Did you mean {}?", either_of(meant)));
}

std::string topic_text(const ArgumentTable& table, std::string_view topic) {
    if (topic == all_topic) return help_text(table);
    if (topic == environment_topic) return environment_lines(table);
    for (const ArgumentGroup& group : table.groups())
        if (topic == group.name) return group_lines(table, group);
    for (const EnvironmentVariable& variable : environment_table())
        if (topic == variable.name && variable.is_for(table.command())) return variable_lines(variable);
    const std::string name =
        with_underscores(topic.substr(std::min(topic.find_first_not_of('-'), topic.size())));
    if (const Argument* argument = named_argument(table, name)) return argument_page(table, *argument);
    std::string pages;
    std::set<const Argument*> shown;
    if (!name.empty())
        for (const std::string& longer : names_with(table, name, true)) {
            // The beginning of "no_" fits every boolean.
            if (name.size() < 3 && table.first_name_of(longer).empty()) continue;
            if (const Argument* argument = named_argument(table, longer); shown.insert(argument).second)
                pages += (pages.empty() ? "" : "\n") + argument_page(table, *argument);
        }
    if (pages.empty()) refuse_topic(table, topic, name);
    return pages;
}

/// What stands for a value in the short help.
std::string placeholder(const Argument& argument) {
    switch (argument.type) {
        case ArgumentType::boolean:
            return "";
        case ArgumentType::optional_boolean:
            return "yes|no";
        case ArgumentType::integer:
        case ArgumentType::number:
            return "N";
        case ArgumentType::text:
            return argument.is_path ? "PATH" : "TEXT";
        case ArgumentType::words:
            return "WORDS";
        case ArgumentType::json:
            return "JSON";
        case ArgumentType::choice:
            return std::string(argument.choices);
    }
    return "";
}

ShownValue shown_value(const Argument& argument) {
    const std::string_view value = argument.default_text;
    const bool says_default = value != "no" && argument.type != ArgumentType::choice;
    return {.placeholder = placeholder(argument), .remark = says_default ? std::string(value) : ""};
}

std::string common_line(const CommonArgument& common, const ShownValue& value) {
    constexpr std::size_t longest = 20;
    std::string head = fmt::format("--{}", common.name);
    if (value.placeholder.size() > longest)
        head += " CHOICE";
    else if (!value.placeholder.empty())
        head += " " + value.placeholder;
    return fmt::format("  {:<39}{}{}\n", head, common.meaning,
                       value.remark.empty() ? "" : fmt::format(" ({})", value.remark));
}

}  // namespace

std::optional<HelpRequest> help_request(std::span<const std::string> words) {
    for (std::size_t i = 0; i < words.size(); ++i) {
        const std::string& word = words[i];
        if (word == "--help_markdown" || word == "--help-markdown") return HelpRequest{.is_page = true};
        std::string topic;
        if (word.starts_with("--help=")) {
            topic = word.substr(7);
        } else if (word == "-h" || word == "--help") {
            const bool has_topic =
                i + 1 < words.size() && (!words[i + 1].starts_with('-') || i + 2 == words.size());
            if (has_topic) topic = words[i + 1];
        } else {
            continue;
        }
        // It is a boolean, too.
        const std::optional<bool> is_wanted = boolean_from_word(topic);
        if (is_wanted.value_or(true)) return HelpRequest{.topic = is_wanted ? "" : topic};
    }
    return std::nullopt;
}

std::string help_answer(const ArgumentTable& table, const HelpRequest& request) {
    if (request.is_page) return markdown_page(table);
    return request.topic.empty() ? short_help(table) : topic_text(table, request.topic);
}

std::vector<std::string> help_topics(const ArgumentTable& table) {
    std::vector<std::string> topics{std::string(all_topic)};
    for (const ArgumentGroup& group : table.groups()) topics.emplace_back(group.name);
    topics.emplace_back(environment_topic);
    return topics;
}

std::string short_help(const ArgumentTable& table) {
    const CommandText& words = command_text(table);
    std::string text = wrapped(words.summary, 0) + "\n" + usage_of(table) + "\n";
    for (const std::string& line : split_words(words.examples, '\n')) text += "  " + line + "\n";
    return text + "\n" +
           common_lines(words.common, [&](std::string_view name) { return shown_value(*table.find(name)); }) +
           "\n" +
           more_lines(fmt::format("drover {}", table.command()), "an argument, such as max_steps,",
                      help_topics(table));
}

std::string common_lines(std::span<const CommonGroup> groups,
                         const std::function<ShownValue(std::string_view name)>& value_of) {
    std::string lines;
    for (const CommonGroup& group : groups) {
        lines += fmt::format("{}\n", group.title);
        for (const CommonArgument& common : group.arguments)
            lines += common_line(common, value_of(common.name));
    }
    return lines;
}

std::string more_lines(std::string_view command, std::string_view word,
                       const std::vector<std::string>& topics) {
    return fmt::format("More: {} --help WORD, where WORD is {} or\n", command, word) +
           wrapped(fmt::format("{}", fmt::join(topics, ", ")), 2);
}

std::string help_text(const ArgumentTable& table) {
    std::string text = usage_of(table) + "\n";
    text += wrapped(
        fmt::format(
            "{} Write --name value or --name=value. Hyphens and underscores are the same, the beginning "
            "of a name is enough when it fits only one argument, and --no_x switches a boolean off.",
            command_text(table).summary),
        0);
    for (const ArgumentGroup& group : table.groups()) text += "\n" + group_lines(table, group);
    return text + "\n" + environment_lines(table);
}

}  // namespace drover
