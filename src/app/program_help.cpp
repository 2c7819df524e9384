#include "app/program_help.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "app/command_help.h"
#include "app/command_words.h"
#include "app/commands.h"
#include "args/argument_table.h"
#include "args/command.h"
#include "args/help_text.h"
#include "core/console.h"
#include "core/error.h"
#include "core/words.h"

namespace drover {
namespace {

struct CommandLineOfHelp {
    std::string_view name, summary;
};

struct CommandGroup {
    std::string_view title;
    std::vector<CommandLineOfHelp> commands;
};

/// A command that is in none of them is shown under the last heading.
const std::vector<CommandGroup>& command_groups() {
    static const std::vector<CommandGroup> groups{
        CommandGroup{
            "Train",
            {{"run_clm", "train or fine-tune on text, from a run_clm.py command line"},
             {"sft", "fine-tune on conversations or prompts, from a command line of TRL's sft"},
             {"run_llama_nxd",
              "train with tensor and pipeline parallelism, from a run_llama_nxd.py command line"},
             {"launch", "start a training command on several processes or machines, as torchrun does"},
             {"precompile", "rehearse a training command, as neuron_parallel_compile does"}}},
        CommandGroup{"Use a model",
                     {{"generate", "continue a prompt, or chat"},
                      {"eval", "measure loss, perplexity and accuracy on a text"}}},
        CommandGroup{"Prepare and move files",
                     {{"tokenize", "turn text into token ids or token files"},
                      {"convert", "convert checkpoints to other layouts, and to GGUF"},
                      {"fetch", "download a model or dataset of the Hugging Face Hub"},
                      {"login", "keep a token of the Hub"},
                      {"cache", "show and clear the Hub's cache"}}},
        CommandGroup{"Measure", {{"bench", "measure training steps and single operations on this machine"}}},
        CommandGroup{"Find your way",
                     {{"help", "explain a command, a group of flags, or a flag"},
                      {"doctor", "say what this machine can do, and what to do about what is missing"},
                      {"completion", "print a script with which bash, zsh or fish completes words"},
                      {"man", "print a page of the manual"}}},
    };
    return groups;
}

std::string command_line_of(const Command& program, const std::string& name) {
    return fmt::format("  {:<15}{}\n", name, summary_of(*program.find(name)));
}

/// The lines of one flag.
std::string flag_lines(const FlagDescription& flag) {
    std::string head = flag.usage();
    if (flag.is_required) head += " (required)";
    if (!flag.default_text.empty()) head += fmt::format(" (default: {})", flag.default_text);
    return wrapped_text(head, 2, help_columns) + wrapped_text(flag.help, 6, help_columns);
}

/// Without hyphens before it, and with underscores in it.
std::string plain_name(const std::string& written) {
    return with_underscores(
        std::string_view(written).substr(std::min(written.find_first_not_of('-'), written.size())));
}

bool has_name(const FlagDescription& flag, const std::string& name) {
    return std::ranges::any_of(flag.names,
                               [&](const std::string& written) { return plain_name(written) == name; });
}

/// A flag, all those whose names begin so, or "all".
std::string flag_help(const Command& command, const std::string& topic) {
    if (topic == "all") return full_command_help(command);
    const std::string name = plain_name(topic);
    std::vector<std::string> known;
    std::string of_beginning;
    for (const FlagDescription& flag : command.flags()) {
        if (has_name(flag, name)) return flag_lines(flag);
        bool begins_so = false;
        for (const std::string& written : flag.names) {
            known.push_back(plain_name(written));
            begins_so = begins_so || (!name.empty() && known.back().starts_with(name));
        }
        if (begins_so) of_beginning += flag_lines(flag);
    }
    if (!of_beginning.empty()) return of_beginning;
    throw UsageError(
        fmt::format("`{}` has no flag \"{}\".", command.full_name(), topic),
        did_you_mean(name, known, "", fmt::format("`{} --help` lists its flags.", command.full_name())));
}

/// The error for a first word of `drover help` that is no command: perhaps it is a flag of some.
UsageError no_such_topic(const Command& program, const std::string& topic) {
    const std::string name = plain_name(topic);
    std::vector<std::string> with_group, with_flag;
    for (const std::string& command : program.command_names()) {
        if (const ArgumentTable* table = table_of_command(command)) {
            if (std::ranges::find(table->groups(), name, &ArgumentGroup::name) != table->groups().end())
                with_group.push_back(command);
            else if (!table->first_name_of(name).empty())
                with_flag.push_back(command);
        } else if (std::ranges::any_of(program.find(command)->flags(), [&](const FlagDescription& flag) {
                       return !flag.is_word && has_name(flag, name);
                   })) {
            with_flag.push_back(command);
        }
    }
    const std::vector<std::string>& commands = with_group.empty() ? with_flag : with_group;
    if (commands.empty()) return no_such_command(program, topic);
    return UsageError(fmt::format("{} is a {} of {}.", name, with_group.empty() ? "flag" : "group of flags",
                                  fmt::join(commands, ", ")),
                      fmt::format("Write drover help {} {}.", commands.front(), name));
}

[[noreturn]] void refuse_more(const std::string& word) {
    throw UsageError(fmt::format("\"{}\" is not expected.", word),
                     "Give a command and at most one topic: drover help COMMAND [FLAG|GROUP].");
}

}  // namespace

std::string summary_of(const Command& command) {
    for (const CommandGroup& group : command_groups())
        for (const CommandLineOfHelp& line : group.commands)
            if (command.full_name() == fmt::format("drover {}", line.name)) return std::string(line.summary);
    const std::string text = command.description();
    std::size_t end = std::min(text.find_first_of(":;\n"), text.size());
    end = std::min(end, text.find(". "));
    std::string summary = text.substr(0, end);
    if (summary.ends_with('.')) summary.pop_back();
    return summary;
}

std::string program_help(const Command& program) {
    std::string text =
        wrapped_text(program.description(), 0, help_columns) + "\nUsage: drover COMMAND [--NAME VALUE ...]\n";
    std::set<std::string, std::less<>> shown;
    for (const CommandGroup& group : command_groups()) {
        text += fmt::format("\n{}\n", group.title);
        for (const CommandLineOfHelp& line : group.commands) {
            text += command_line_of(program, std::string(line.name));
            shown.emplace(line.name);
        }
    }
    for (const std::string& name : program.command_names())
        if (!shown.contains(name)) text += command_line_of(program, name);
    return text +
           "\ndrover COMMAND --help explains a command, drover --version says which drover this is.\n"
           "Start: drover help sft    drover help run_clm    drover help generate\n";
}

std::string help_of(const Command& program, std::vector<std::string> words) {
    if (words.empty()) return program_help(program);
    const std::vector<Command> commands = take_command(program, words);
    if (commands.empty()) throw no_such_topic(program, words.front());
    if (commands.front().is_hidden()) throw no_such_command(program, commands.front().name());
    if (words.size() > 1) refuse_more(words[1]);
    const Command& command = commands.back();
    if (const ArgumentTable* table = table_of_command(command.name()))
        return help_answer(*table, HelpRequest{.topic = words.empty() ? "" : words.front()});
    if (words.empty()) return command.help();
    return flag_help(command, words.front());
}

std::optional<std::string> help_on_topic(const Command& program, std::vector<std::string> words) {
    const std::vector<Command> commands = take_command(program, words);
    if (commands.empty() || table_of_command(commands.back().name()) != nullptr) return std::nullopt;
    // Where words are passed on, a --help behind others may be one of them.
    if (commands.back().takes_words() && (words.size() != 2 || !words.front().starts_with('-')))
        return std::nullopt;
    const std::optional<HelpRequest> request = help_request(words);
    if (!request || request->topic.empty()) return std::nullopt;
    return flag_help(commands.back(), request->topic);
}

void add_help_command(const Command& app) {
    const Command command = app.add_command("help",
                                            "Explain a command, a group of flags, or a flag.\n"
                                            "Example: drover help run_clm learning_rate");
    command.set_footer(
        "Arguments: COMMAND [FLAG|GROUP]. run_clm, sft and run_llama_nxd have groups of flags, such as data; "
        "all shows every flag.");
    command.take_words();
    command.set_action([command, app] {
        const std::vector<std::string> words = command.words();
        if (!words.empty() && words.front().starts_with("--"))
            throw unknown_flag(command, words.front(), "Write drover help, or drover help COMMAND.");
        write_result(help_of(app, words));
    });
}

}  // namespace drover
