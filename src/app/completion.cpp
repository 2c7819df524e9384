#include <fmt/format.h>

#include <memory>

#include "app/candidates.h"
#include "app/commands.h"
#include "app/completion_scripts.h"
#include "args/command.h"
#include "core/console.h"

namespace drover {
namespace {

/// bash ends words at "=": "--device", "=", "cu" are one word here.
std::vector<std::string> joined(const std::vector<std::string>& words) {
    std::vector<std::string> result;
    for (std::size_t i = 0; i < words.size(); ++i) {
        if (words[i] != "=" || result.empty() || !result.back().starts_with("--")) {
            result.push_back(words[i]);
            continue;
        }
        result.back() += "=";
        if (i + 1 < words.size()) result.back() += words[++i];
    }
    return result;
}

/// A line for every candidate, "word<tab>meaning", and ":files" if the names of files fit, too. The first of
/// the words is the shell; bash and zsh replace what follows the "=" of a flag, fish the whole word.
void print_candidates(const Command& program, std::vector<std::string> words) {
    if (words.empty()) return;
    const std::string shell = words.front();
    words.erase(words.begin());
    if (shell == "bash") words = joined(words);
    const Candidates found = candidates(program, words);
    std::string lines;
    for (const Candidate& candidate : found.words) {
        const std::size_t equals =
            candidate.word.starts_with("--") ? candidate.word.find('=') : std::string::npos;
        lines += shell == "fish" || equals == std::string::npos ? candidate.word
                                                                : candidate.word.substr(equals + 1);
        if (!candidate.meaning.empty()) lines += "\t" + candidate.meaning;
        lines += "\n";
    }
    if (found.files) lines += ":files\n";
    write_result(lines);
}

}  // namespace

void add_completion_command(const Command& app) {
    auto shell = std::make_shared<std::string>();
    const Command command =
        app.add_command("completion",
                        "Print a script with which a shell completes commands, flags and values.\n"
                        "Example: echo 'source <(drover completion bash)' >> ~/.bashrc");
    command.add_option("shell", *shell, "the shell that reads the script")
        .required()
        .one_of({"bash", "zsh", "fish"});
    command.set_footer(
        "bash: source <(drover completion bash)\n"
        "zsh:  source <(drover completion zsh), after compinit; or as the file _drover in a folder of "
        "$fpath\n"
        "fish: drover completion fish > ~/.config/fish/completions/drover.fish");
    command.set_action([shell] { write_result(completion_script(*shell)); });
    const Command part = app.add_command("completion-candidates", "A part of drover completion.");
    part.hide();
    part.without_help();
    part.take_words();
    part.set_action([part, app] { print_candidates(app, part.words()); });
}

}  // namespace drover
