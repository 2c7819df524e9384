#include "app/command_words.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "core/words.h"

namespace drover {
namespace {

bool is_flag(const std::string& word) {
    return word.size() > 2 && word.starts_with("--");
}

/// The command's spelling of the flag; the written one if it has no such flag.
std::string known_spelling(const CLI::App& command, const std::string& written) {
    const auto known = [&](const std::string& flag) { return command.get_option_no_throw(flag) != nullptr; };
    if (known(written)) return written;
    for (const auto& [from, to] : {std::pair{'-', '_'}, std::pair{'_', '-'}}) {
        std::string other = written;
        std::replace(other.begin() + 2, other.end(), from, to);
        if (known(other)) return other;
    }
    return written;
}

/// The innermost command that was named.
const CLI::App& named_command(const CLI::App& app) {
    const CLI::App* command = &app;
    while (!command->get_subcommands().empty()) command = command->get_subcommands().front();
    return *command;
}

/// The sub-command of that name; nullptr if there is none.
const CLI::App* inner_command(const CLI::App& app, const std::string& name) {
    const auto found =
        app.get_subcommands([&](const CLI::App* command) { return command->get_name() == name; });
    return found.empty() ? nullptr : found.front();
}

/// Example: "drover bench ops".
std::string full_name(const CLI::App& command) {
    const CLI::App* parent = command.get_parent();
    return parent == nullptr ? command.get_name() : full_name(*parent) + " " + command.get_name();
}

}  // namespace

std::vector<std::string> known_spellings(const CLI::App& app, std::vector<std::string> words) {
    const CLI::App* command = &app;
    for (std::string& word : words) {
        if (word == "--" || command->get_prefix_command()) break;
        if (is_flag(word)) {
            const std::size_t end = std::min(word.find('='), word.size());
            word = known_spelling(*command, word.substr(0, end)) + word.substr(end);
        } else if (const CLI::App* inner = inner_command(*command, word); inner != nullptr) {
            command = inner;
        }
    }
    return words;
}

std::string nearest_flag(const CLI::App& command, const std::string& flag) {
    std::vector<std::string> known;
    for (const CLI::Option* option : command.get_options())
        known.insert(known.end(), option->get_lnames().begin(), option->get_lnames().end());
    const std::string nearest = nearest_name(flag.substr(2, flag.find('=') - 2), known);
    return nearest.empty() ? nearest : "--" + nearest;
}

UsageError not_expected(const CLI::App& app) {
    const CLI::App& command = named_command(app);
    const std::string name = full_name(command);
    std::vector<std::string> flags, others, commands, meant;
    for (const CLI::App* inner : command.get_subcommands({})) commands.push_back(inner->get_name());
    bool value_may_follow = false;
    for (const std::string& word : app.remaining(true)) {
        if (is_flag(word)) {
            flags.push_back(word.substr(0, word.find('=')));
        } else if (!value_may_follow) {
            others.push_back(fmt::format("\"{}\"", word));
            if (std::string nearest = nearest_name(word, commands); !nearest.empty())
                meant.push_back(std::move(nearest));
        }
        value_may_follow = is_flag(word) && word.find('=') == std::string::npos;
    }
    for (const std::string& flag : flags)
        if (std::string nearest = nearest_flag(command, flag); !nearest.empty())
            meant.push_back(std::move(nearest));
    std::string problem;
    if (!flags.empty()) problem = fmt::format("has no flag {}", either_of(flags));
    if (!others.empty())
        problem += fmt::format("{}does not expect {}", flags.empty() ? "" : " and ", fmt::join(others, ", "));
    const std::string help = fmt::format("{}`{} --help` lists its flags.",
                                         flags.empty() ? "Values follow their flags. " : "", name);
    return UsageError(fmt::format("`{}` {}.", name, problem),
                      meant.empty() ? help : fmt::format("Did you mean {}?", fmt::join(meant, " and ")));
}

}  // namespace drover
