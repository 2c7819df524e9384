#include "app/command_help.h"

#include <fmt/format.h>

#include <algorithm>

#include "app/common_flags.h"
#include "app/program_help.h"
#include "args/command.h"
#include "args/help_text.h"
#include "core/words.h"

namespace drover {
namespace {

/// Where the meanings of flags begin.
constexpr std::size_t meaning_column = 32;

/// "  --steps N        steps to run (8)", over as many lines as it takes.
std::string two_columns(const std::string& name, const std::string& meaning) {
    std::string lines = wrapped_text(meaning, meaning_column, help_columns);
    if (2 + name.size() + 2 <= meaning_column) return lines.replace(2, name.size(), name);
    return fmt::format("  {}\n{}", name, lines);
}

std::string flag_columns(const FlagDescription& flag) {
    std::string meaning = flag.help;
    if (flag.is_word && !flag.choices.empty()) meaning += ": " + flag.value();
    if (flag.is_required && !flag.is_word) meaning += " (required)";
    if (!flag.default_text.empty()) meaning += fmt::format(" ({})", flag.default_text);
    return two_columns(flag.is_word ? flag.names.front() : flag.usage(), meaning);
}

/// A command line that a shell can read, also where it takes several lines.
std::string example_lines(const std::string& example) {
    constexpr std::string_view continued = " \\\n";
    std::string lines = wrapped_text(example, 6, help_columns - continued.size());
    lines.erase(0, 4);
    for (std::size_t end = lines.find('\n'); end + 1 < lines.size();
         end = lines.find('\n', end + continued.size()))
        lines.replace(end, 1, continued);
    return lines;
}

std::string usage_line(const Command& command, const std::vector<FlagDescription>& flags) {
    std::string words, options;
    for (const FlagDescription& flag : flags)
        if (flag.is_word)
            words += " " + flag.usage();
        else if (flag.names.back() != "--help")
            options = " [--NAME VALUE ...]";
    if (!command.command_names().empty()) words += command.needs_command() ? " COMMAND" : " [COMMAND]";
    if (command.takes_words()) words += " [WORDS ...]";
    return fmt::format("\nUsage: {}{}\n", command.full_name(),
                       command.takes_words() ? options + words : words + options);
}

/// What it does, its usage and examples. `is_short`: of the description the first paragraph.
std::string beginning(const Command& command, bool is_short) {
    std::string description, examples;
    for (const DescriptionPart& part : description_parts(command))
        if (part.is_example)
            examples += example_lines(part.text) + "\n";
        else if (!is_short || description.empty())
            description += wrapped_text(part.text, 0, help_columns);
    return description + usage_line(command, command.flags()) + "\n" + examples;
}

std::string nested_commands(const Command& command) {
    std::string lines;
    for (const std::string& name : command.command_names())
        lines += two_columns(name, summary_of(*command.find(name)));
    return lines.empty() ? "" : "\nCommands\n" + lines;
}

std::string flags_by_group(const Command& command, std::span<const CommonGroup> groups) {
    const std::vector<FlagDescription> flags = command.flags();
    return common_lines(groups, [&](std::string_view name) {
        const FlagDescription& flag = *std::ranges::find_if(flags, [&](const FlagDescription& candidate) {
            return std::ranges::find(candidate.names, fmt::format("--{}", name)) != candidate.names.end();
        });
        return ShownValue{.placeholder = flag.value_may_be_missing ? "" : flag.value(),
                          .remark = flag.is_required ? "required" : flag.default_text};
    });
}

/// "all", and the flags that are in none of the groups.
std::vector<std::string> other_topics(const Command& command, std::span<const CommonGroup> groups) {
    std::vector<std::string> topics{"all"};
    for (const FlagDescription& flag : command.flags()) {
        const std::string name = flag.names.front().substr(flag.names.front().find_first_not_of('-'));
        const bool is_shown = std::ranges::any_of(groups, [&](const CommonGroup& group) {
            return std::ranges::find(group.arguments, name, &CommonArgument::name) != group.arguments.end();
        });
        if (!is_shown && flag.names.back() != "--help") topics.push_back(name);
    }
    return topics;
}

}  // namespace

std::vector<DescriptionPart> description_parts(const Command& command) {
    std::vector<DescriptionPart> parts;
    std::string paragraph;
    const auto end_paragraph = [&] {
        if (!paragraph.empty()) parts.push_back({paragraph});
        paragraph.clear();
    };
    constexpr std::string_view example = "Example: ";
    for (const std::string& line : split_words(command.description(), '\n')) {
        if (line.starts_with(example) || paragraph.ends_with('.')) end_paragraph();
        if (line.starts_with(example))
            parts.push_back({line.substr(example.size()), true});
        else
            paragraph += (paragraph.empty() ? "" : " ") + line;
    }
    end_paragraph();
    return parts;
}

std::string command_help(const Command& command) {
    const std::span<const CommonGroup> groups = common_flags(command);
    if (groups.empty()) return full_command_help(command);
    return beginning(command, true) + flags_by_group(command, groups) + nested_commands(command) + "\n" +
           more_lines(command.full_name(), "a flag above,", other_topics(command, groups));
}

std::string full_command_help(const Command& command) {
    std::string text = beginning(command, false);
    for (const FlagDescription& flag : command.flags()) text += flag_columns(flag);
    text += nested_commands(command);
    const std::vector<std::string> footer = split_words(command.footer(), '\n');
    if (!footer.empty()) text += "\n";
    for (const std::string& line : footer) text += wrapped_text(line, 0, help_columns);
    return text;
}

}  // namespace drover
