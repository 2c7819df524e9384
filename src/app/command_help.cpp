#include "app/command_help.h"

#include <fmt/format.h>

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
    std::string text;
    const std::vector<DescriptionPart> parts = description_parts(command);
    for (const DescriptionPart& part : parts)
        if (!part.is_example) text += wrapped_text(part.text, 0, help_columns);
    const std::vector<FlagDescription> flags = command.flags();
    text += usage_line(command, flags) + "\n";
    for (const DescriptionPart& part : parts)
        if (part.is_example) text += example_lines(part.text) + "\n";
    for (const FlagDescription& flag : flags) text += flag_columns(flag);
    const std::vector<std::string> names = command.command_names();
    if (!names.empty()) text += "\nCommands\n";
    for (const std::string& name : names) text += two_columns(name, summary_of(*command.find(name)));
    const std::vector<std::string> footer = split_words(command.footer(), '\n');
    if (!footer.empty()) text += "\n";
    for (const std::string& line : footer) text += wrapped_text(line, 0, help_columns);
    return text;
}

}  // namespace drover
