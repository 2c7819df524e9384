#include "app/command_words.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "args/command.h"
#include "core/words.h"

namespace drover {
namespace {

bool is_flag(const std::string& word) {
    return word.size() > 2 && word.starts_with("--");
}

/// The command's spelling of the flag; the written one if it has no such flag.
std::string known_spelling(const Command& command, const std::string& written) {
    const auto known = [&](const std::string& flag) { return command.has_flag(flag); };
    if (known(written)) return written;
    for (const auto& [from, to] : {std::pair{'-', '_'}, std::pair{'_', '-'}}) {
        std::string other = written;
        std::replace(other.begin() + 2, other.end(), from, to);
        if (known(other)) return other;
    }
    return written;
}

/// What people may call a thing that has another name here.
struct OtherName {
    std::string_view word, commands;
};
constexpr std::array other_names{
    OtherName{"train", "run_clm or sft"},
    OtherName{"pretrain", "run_clm"},
    OtherName{"finetune", "sft or run_clm"},
    OtherName{"fine_tune", "sft or run_clm"},
    OtherName{"lora", "sft or run_clm"},
    OtherName{"evaluate", "eval"},
    OtherName{"chat", "generate --chat"},
    OtherName{"infer", "generate"},
    OtherName{"predict", "generate"},
    OtherName{"complete", "generate"},
    OtherName{"benchmark", "bench"},
    OtherName{"download", "fetch"},
    OtherName{"pull", "fetch"},
    OtherName{"logout", "login --logout"},
    OtherName{"whoami", "login --whoami"},
    OtherName{"torchrun", "launch"},
    OtherName{"mpirun", "launch"},
    OtherName{"encode", "tokenize"},
    OtherName{"export", "convert"},
    OtherName{"merge", "convert"},
    OtherName{"quantize", "convert"},
    OtherName{"version", "--version"},
};

/// The innermost command that was named.
Command named_command(const Command& program) {
    const std::optional<Command> inner = program.given_command();
    return inner ? named_command(*inner) : program;
}

}  // namespace

std::vector<std::string> known_spellings(const Command& program, std::vector<std::string> words) {
    Command command = program;
    for (std::string& word : words) {
        if (word == "--" || command.takes_words()) break;
        if (is_flag(word)) {
            const std::size_t end = std::min(word.find('='), word.size());
            word = known_spelling(command, word.substr(0, end)) + word.substr(end);
        } else if (const std::optional<Command> inner = find_written_command(command, word)) {
            command = *inner;
            word = command.name();
        }
    }
    return words;
}

std::optional<Command> find_written_command(const Command& command, const std::string& name) {
    if (std::optional<Command> found = command.find(name)) return found;
    return command.find(with_underscores(name));
}

std::vector<Command> take_command(const Command& program, std::vector<std::string>& words) {
    std::vector<Command> commands;
    while (!words.empty()) {
        const std::optional<Command> inner =
            find_written_command(commands.empty() ? program : commands.back(), words.front());
        if (!inner) break;
        commands.push_back(*inner);
        words.erase(words.begin());
    }
    return commands;
}

UsageError no_such_command(const Command& program, const std::string& name) {
    std::string plain = with_underscores(lower_case(name));
    if (plain.ends_with(".py")) plain.resize(plain.size() - 3);
    std::vector<std::string> names = program.command_names();
    for (const OtherName& other : other_names) names.emplace_back(other.word);
    std::string meant = nearest_name(plain, names);
    if (std::find(names.begin(), names.end(), plain) != names.end()) meant = plain;
    for (const OtherName& other : other_names)
        if (meant == other.word) meant = other.commands;
    return UsageError(fmt::format("There is no command \"{}\".", name),
                      meant.empty() ? fmt::format("`{} --help` lists the commands.", program.full_name())
                                    : fmt::format("Did you mean {}?", meant));
}

std::string nearest_flag(const Command& command, const std::string& flag) {
    const std::string nearest = nearest_name(flag.substr(2, flag.find('=') - 2), command.flag_names());
    return nearest.empty() ? nearest : "--" + nearest;
}

UsageError unknown_flag(const Command& command, const std::string& flag, const std::string& otherwise) {
    const std::string meant = nearest_flag(command, flag);
    return UsageError(fmt::format("The flag {} is unknown.", flag),
                      meant.empty() ? otherwise : fmt::format("Did you mean {}?", meant));
}

UsageError not_expected(const Command& program) {
    const Command command = named_command(program);
    const std::string name = command.full_name();
    const std::vector<std::string> commands = command.command_names();
    std::vector<std::string> flags, others, meant;
    bool value_may_follow = false;
    for (const std::string& word : program.all_words()) {
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
