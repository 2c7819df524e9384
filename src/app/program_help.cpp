#include "app/program_help.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <set>

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
    std::initializer_list<CommandLineOfHelp> commands;
};

/// A command that is in none of them is shown under the last heading.
const std::array command_groups{
    CommandGroup{"Train",
                 {{"run_clm", "train or fine-tune on text, from a run_clm.py command line"},
                  {"sft", "fine-tune on conversations or prompts, from a command line of TRL's sft"},
                  {"run_llama_nxd",
                   "train with tensor and pipeline parallelism, from a run_llama_nxd.py command line"},
                  {"launch", "start one of these on several processes or machines, as torchrun does"},
                  {"precompile", "rehearse one of these, as neuron_parallel_compile does"}}},
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
                  {"completion", "print a script with which bash, zsh or fish completes words"},
                  {"man", "print a page of the manual"}}},
};

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

std::string flag_help(const Command& command, const std::string& topic) {
    std::string name = topic.substr(std::min(topic.find_first_not_of('-'), topic.size()));
    std::replace(name.begin(), name.end(), '-', '_');
    std::vector<std::string> known;
    for (const FlagDescription& flag : command.flags())
        for (const std::string& written : flag.names) {
            std::string other = written.substr(std::min(written.find_first_not_of('-'), written.size()));
            std::replace(other.begin(), other.end(), '-', '_');
            if (other == name) return flag_lines(flag);
            known.push_back(std::move(other));
        }
    throw UsageError(
        fmt::format("`{}` has no flag \"{}\".", command.full_name(), topic),
        did_you_mean(name, known, "", fmt::format("`{} --help` lists its flags.", command.full_name())));
}

}  // namespace

std::string summary_of(const Command& command) {
    for (const CommandGroup& group : command_groups)
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
    for (const CommandGroup& group : command_groups) {
        text += fmt::format("\n{}\n", group.title);
        for (const CommandLineOfHelp& line : group.commands) {
            text += command_line_of(program, std::string(line.name));
            shown.emplace(line.name);
        }
    }
    for (const std::string& name : program.command_names())
        if (!shown.contains(name) && !program.find(name)->is_hidden()) text += command_line_of(program, name);
    return text +
           "\ndrover COMMAND --help explains a command, drover --version says which drover this is.\n"
           "Start: drover help sft    drover help run_clm    drover help generate\n";
}

std::string help_of(const Command& program, std::vector<std::string> words) {
    if (words.empty()) return program_help(program);
    const std::vector<Command> commands = take_command(program, words);
    if (commands.empty() || (commands.front().is_hidden())) throw no_such_command(program, words.front());
    const Command& command = commands.back();
    if (const ArgumentTable* table = table_of_command(command.name())) {
        words.insert(words.begin(), "--help");
        return help_answer(*table, *help_request(words));
    }
    if (words.empty()) return command.help();
    return flag_help(command, words.front());
}

std::optional<std::string> help_on_topic(const Command& program, std::vector<std::string> words) {
    const std::vector<Command> commands = take_command(program, words);
    if (commands.empty() || table_of_command(commands.back().name()) != nullptr) return std::nullopt;
    if (words.size() != 2 || (words[0] != "--help" && words[0] != "-h")) return std::nullopt;
    return flag_help(commands.back(), words[1]);
}

void add_help_command(const Command& app) {
    const Command command = app.add_command("help",
                                            "Explains a command, a group of flags, or a flag.\n"
                                            "Example: drover help run_clm learning_rate");
    command.set_footer(
        "After it: a command, and what of it: a flag, or of run_clm, sft and run_llama_nxd also "
        "all, or a group of arguments such as data.");
    command.take_words();
    command.set_action([command, app] {
        const std::vector<std::string> words = command.words();
        if (!words.empty() && words.front().starts_with("--"))
            throw unknown_flag(command, words.front(), "Write drover help, or drover help COMMAND.");
        write_result(help_of(app, words));
    });
}

}  // namespace drover
