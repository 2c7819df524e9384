#include "app/candidates.h"

#include <algorithm>
#include <optional>

#include "app/command_words.h"
#include "app/program_help.h"
#include "args/argument_table.h"
#include "args/command.h"

namespace drover {
namespace {

bool same_name(const std::string& left, const std::string& right) {
    return std::equal(left.begin(), left.end(), right.begin(), right.end(),
                      [](char a, char b) { return (a == '-' ? '_' : a) == (b == '-' ? '_' : b); });
}

std::optional<FlagDescription> find_flag(const Command& command, const std::string& written) {
    for (FlagDescription& flag : command.flags())
        for (const std::string& name : flag.names)
            if (!flag.is_word && same_name(name, written)) return std::move(flag);
    return std::nullopt;
}

/// The flag that the last of the words is, if its value follows.
std::optional<FlagDescription> flag_before(const Command& command, const std::vector<std::string>& words) {
    if (words.empty() || !words.back().starts_with('-')) return std::nullopt;
    std::optional<FlagDescription> flag = find_flag(command, words.back());
    return flag && flag->takes_value ? flag : std::nullopt;
}

void offer_values(Candidates& found, const FlagDescription& flag, const std::string& before,
                  const std::string& typed) {
    for (const std::string& choice : flag.choices) found.offer(before + choice, typed);
    if (flag.choices.empty() && !flag.is_number) found.files = true;
}

/// Offers one of its names, as it is spelled, or as the typed word is.
void offer_flag(Candidates& found, const FlagDescription& flag, const std::string& typed) {
    std::vector<std::string> names = flag.names;
    for (const std::string& name : flag.names)
        for (const auto& [from, to] : {std::pair{'-', '_'}, std::pair{'_', '-'}})
            if (name.starts_with("--")) {
                names.push_back(name);
                std::replace(names.back().begin() + 2, names.back().end(), from, to);
            }
    for (const std::string& name : names)
        if (name.starts_with(typed) && (name.starts_with("--") || typed == name))
            return found.offer(name, typed, first_clause(flag.help));
}

void offer_commands(Candidates& found, const Command& command, const std::string& typed,
                    bool only_with_table = false) {
    for (const std::string& name : command.command_names()) {
        const Command inner = *command.find(name);
        if (!only_with_table || table_of_command(name) != nullptr)
            found.offer(name, typed, summary_of(inner));
    }
}

/// "all" and the names of flags.
Candidates flag_topics(const Command& command, const std::string& typed) {
    Candidates found;
    found.offer("all", typed, "every flag");
    for (const FlagDescription& flag : command.flags())
        if (!flag.is_word) found.offer(flag.names.back().substr(2), typed, first_clause(flag.help));
    return found;
}

/// Whether a topic of help follows these words. Behind a program that the command starts, --help is the
/// program's.
bool asks_for_help(const Command& command, const std::vector<std::string>& before) {
    if (before.empty() || (command.takes_words() && before.size() > 1)) return false;
    return before.back() == "--help" || before.back() == "-h";
}

Candidates topics(const Command& program, std::vector<std::string> words, const std::string& typed) {
    const std::vector<Command> commands = take_command(program, words);
    if (!words.empty()) return {};  // the topic is there already
    Candidates found;
    if (commands.empty()) {
        offer_commands(found, program, typed);
        return found;
    }
    if (const ArgumentTable* table = table_of_command(commands.back().name()))
        return argument_candidates(*table, std::vector<std::string>{"--help"}, typed);
    found = flag_topics(commands.back(), typed);
    offer_commands(found, commands.back(), typed);
    return found;
}

/// Of one command: `before` are the words after its name.
Candidates of_command(const Command& command, const std::vector<std::string>& before,
                      const std::string& typed) {
    Candidates found;
    if (const auto flag = flag_before(command, before)) {
        offer_values(found, *flag, "", typed);
        if (!flag->value_may_be_missing) return found;
    }
    if (const std::size_t equals = typed.find('='); equals != std::string::npos && typed.starts_with("--")) {
        if (const auto flag = find_flag(command, typed.substr(0, equals)))
            offer_values(found, *flag, typed.substr(0, equals + 1), typed);
        return found;
    }
    if (typed.starts_with('-')) {
        for (const FlagDescription& flag : command.flags())
            if (!flag.is_word) offer_flag(found, flag, typed);
        return found;
    }
    offer_commands(found, command, typed);
    for (const FlagDescription& flag : command.flags())
        if (flag.is_word) offer_values(found, flag, "", typed);
    return found;
}

}  // namespace

Candidates candidates(const Command& program, std::vector<std::string> words) {
    const std::string typed = words.empty() ? "" : words.back();
    if (!words.empty()) words.pop_back();
    Command command = program;
    std::vector<std::string> before;  // after the name of the command
    for (std::size_t i = 0; i < words.size(); ++i) {
        // launch and precompile start other commands.
        const std::optional<Command> inner =
            flag_before(command, before) || words[i].starts_with('-')
                ? std::nullopt
                : find_written_command(command.takes_words() ? program : command, words[i]);
        if (!inner) {
            before.push_back(words[i]);
            continue;
        }
        command = *inner;
        before.clear();
        const std::vector<std::string> rest(words.begin() + static_cast<std::ptrdiff_t>(i) + 1, words.end());
        if (const ArgumentTable* table = table_of_command(command.name()))
            return argument_candidates(*table, rest, typed);
        if (command.name() == "help" || command.name() == "man") return topics(program, rest, typed);
    }
    if (asks_for_help(command, before) && !typed.starts_with('-')) return flag_topics(command, typed);
    Candidates found = of_command(command, before, typed);
    if (command.takes_words() && !typed.starts_with('-') && !flag_before(command, before)) {
        found.files = true;  // a program
        offer_commands(found, program, typed, true);
    }
    return found;
}

}  // namespace drover
