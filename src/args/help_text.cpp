#include "args/help_text.h"

#include <fmt/format.h>

#include <sstream>

#include "args/argument_table.h"
#include "args/environment_table.h"

namespace drover {
namespace {

constexpr std::size_t columns = 100;
constexpr std::size_t indent = 6;

/// Wraps the text to lines of at most `columns`, each after `margin` spaces.
std::string wrapped(std::string_view text, std::size_t margin) {
    std::string lines, line(margin, ' ');
    std::istringstream words{std::string(text)};
    for (std::string word; words >> word;) {
        if (line.size() > margin && line.size() + 1 + word.size() > columns) {
            lines += line + "\n";
            line.assign(margin, ' ');
        }
        if (line.size() > margin) line += ' ';
        line += word;
    }
    return lines + line + "\n";
}

std::string_view kind_name(ArgumentType type) {
    switch (type) {
        case ArgumentType::boolean:
        case ArgumentType::optional_boolean:
            return "yes|no";
        case ArgumentType::integer:
            return "integer";
        case ArgumentType::number:
            return "number";
        case ArgumentType::text:
            return "text";
        case ArgumentType::words:
            return "words";
        case ArgumentType::json:
            return "JSON or file";
        case ArgumentType::choice:
            return "";
    }
    return "";
}

/// What may follow the flag; long lists of choices are in the description instead.
std::string kind_text(const Argument& argument) {
    constexpr std::size_t longest = 60;
    if (argument.type != ArgumentType::choice) return std::string(kind_name(argument.type));
    return argument.choices.size() <= longest ? std::string(argument.choices) : "choice";
}

std::string sentence(const Argument& argument) {
    std::string text(argument.help);
    if (argument.type == ArgumentType::choice && kind_text(argument) == "choice") {
        std::string choices;
        for (const char letter : argument.choices)
            choices += letter == '|' ? std::string(", ") : std::string(1, letter);
        text += " Choices: " + choices + ".";
    }
    return text;
}

std::string aliases_of(const ArgumentTable& table, const Argument& argument, std::string_view quote) {
    std::string names;
    for (const ArgumentAlias& alias : table.aliases())
        if (alias.stands_for == argument.name)
            names += fmt::format("{}{}--{}{}", names.empty() ? "" : ", ", quote, alias.name, quote);
    return names;
}

std::string_view standing_text(Standing standing) {
    switch (standing) {
        case Standing::acts:
            return "acts";
        case Standing::parallel:
            return "several processes";
        case Standing::explained:
            return "explained";
    }
    return "";
}

/// Text for a cell of a Markdown table.
std::string cell(std::string_view text) {
    std::string escaped;
    for (const char letter : text) {
        if (letter == '|' || letter == '*' || letter == '<') escaped += '\\';
        escaped += letter;
    }
    return escaped;
}

std::string code_cell(std::string_view text) {
    if (text.empty()) return "";
    std::string escaped;
    for (const char letter : text) {
        if (letter == '|') escaped += '\\';
        escaped += letter;
    }
    return "`" + escaped + "`";
}

/// What help and page of a command begin with.
struct CommandText {
    std::string_view usage;
    std::string_view summary;
    std::string_view page;   ///< what the page says of it
    std::string_view notes;  ///< more items of the page's list of how arguments are written
};

constexpr CommandText run_clm_text{
    .usage =
        "Usage: drover run_clm --config_name FILE --tokenizer_name FOLDER --train_file FILE --do_train ...\n"
        "       drover run_clm arguments.json\n\n",
    .summary = "Trains and evaluates causal language models with the command lines of run_clm.py.",
    .page =
        R"(Trains and evaluates causal language models with the command lines of `run_clm.py`. It accepts every
argument of versions 4 and 5, of the forks for sharded training, and of `run_llama_nxd.py`.
)",
    .notes =
        R"(- The words of a file `run_clm.args` beside the program are put before those of the command line.
)"};

constexpr CommandText run_llama_nxd_text{
    .usage =
        "Usage: drover run_llama_nxd --training_config FOLDER --training_dir FOLDER --lr 1.5e-5 --max_steps "
        "100 "
        "...\n"
        "       drover run_llama_nxd arguments.json\n\n",
    .summary =
        "Trains a Llama model with tensor, pipeline and sequence parallelism and ZeRO-1, from the command "
        "lines of neuronx-distributed's run_llama_nxd.py.",
    .page =
        R"(Trains a Llama model with tensor, pipeline and sequence parallelism and ZeRO-1, from the command
lines of neuronx-distributed's `run_llama_nxd.py`. It has every flag of that script with the script's
defaults, except that attention is fused unless `--use_flash_attention 0`. Numbers, data order and
files are those of the script, with these corrections: `--weight_decay` acts, the loss is that of all
data-parallel processes, one process is enough where `--tensor_parallel_size` is 1, and nothing in
`--tb_dir` is deleted.
)",
    .notes = {}};

constexpr CommandText sft_text{
    .usage =
        "Usage: drover sft --model_name_or_path FOLDER --dataset_name FILE --output_dir FOLDER ...\n"
        "       drover sft --config arguments.yaml ...\n"
        "       drover sft arguments.json\n\n",
    .summary =
        "Fine-tunes a causal language model on conversations, prompts with completions, or text, with the "
        "command lines of TRL's sft.",
    .page =
        R"(Fine-tunes a causal language model on conversations, prompts with completions, or text, with the
command lines of TRL's `trl sft` (1.16). It has the arguments of TRL's scripts, of SFTConfig and
ModelConfig and of the Trainer, with TRL's defaults where these differ from
[run_clm](run_clm.md)'s: learning rate 2e-5, bf16, gradient checkpointing, a record every 10 updates,
float32 weights. [guides/finetune.md](guides/finetune.md) shows the whole way, from a file of
conversations to talking with the result.

Records have what TRL's have: `entropy` (of the predictions, in nats), `mean_token_accuracy` and
`num_tokens`; those of evaluations begin with `eval_`. Two things differ from TRL. Special tokens that are
spelled in a message stay text, unless `--allow_special_tokens`. A run that evaluates also does so once
at its end. (With several replicas, `num_tokens` is this one's tokens times their number.)
)",
    .notes =
        R"(- `--config FILE.yaml` names a file with arguments, `name: value` per line; those of the command line
  take precedence. The variables of its `env` are set.
)"};

const CommandText& text_of(const ArgumentTable& table) {
    if (table.command() == "sft") return sft_text;
    return table.command() == "run_clm" ? run_clm_text : run_llama_nxd_text;
}

constexpr std::string_view how_to_write_first =
    R"(
## How arguments are written

- `--name value` or `--name=value`. Hyphens and underscores are the same. The beginning of a name is
  enough when it fits only one argument.
- Booleans: the bare flag means yes, and `--no_name` means no. As values, `yes`, `true`, `t`, `y`,
  `1` and `no`, `false`, `f`, `n`, `0` are accepted in upper and lower case.
- If a flag is repeated, the last one counts. Lists take several words, and repeated flags add to
  them.
- JSON arguments take an object as text (it starts with `{`) or the path of a file.
- A single argument that ends in `.json` is a file with all arguments by name, for example the
  `training_args.json` of an earlier run.
)";

constexpr std::string_view how_to_write_last =
    R"(- An environment variable sets what neither the command line nor a file has set.

*acts*: it does what it says. *several processes*: it is read and checked, and acts when several
processes train together. *explained*: it is accepted, and one line says what it means here.
)";

std::string page_opening(const ArgumentTable& table) {
    const CommandText& text = text_of(table);
    return fmt::format(
        "# drover {0}\n\n<!-- Made by `drover {0} --help_markdown`. Change the tables in src/args, then run "
        "it "
        "again. -->\n\n{1}{2}{3}{4}",
        table.command(), text.page, how_to_write_first, text.notes, how_to_write_last);
}

}  // namespace

std::string help_text(const ArgumentTable& table) {
    std::string text(text_of(table).usage);
    text += wrapped(
        fmt::format(
            "{} Write --name value or --name=value. Hyphens and underscores are the same, the beginning "
            "of a name is enough when it fits only one argument, and --no_x switches a boolean off.",
            text_of(table).summary),
        0);
    for (const ArgumentGroup& group : table.groups()) {
        text += fmt::format("\n{}\n{}", group.title, wrapped(group.introduction, 2));
        for (const Argument& argument : group.arguments) {
            std::string head = fmt::format("--{} {}", argument.name, kind_text(argument));
            if (!argument.default_text.empty()) head += fmt::format(" (default: {})", argument.default_text);
            if (argument.standing != Standing::acts)
                head += fmt::format(" [{}]", standing_text(argument.standing));
            text += wrapped(head, 2) + wrapped(sentence(argument), indent);
            if (const std::string aliases = aliases_of(table, argument, ""); !aliases.empty())
                text += wrapped("Also " + aliases + ".", indent);
            if (argument.standing == Standing::explained) text += wrapped(argument.note, indent);
        }
    }
    text += "\nEnvironment variables\n";
    for (const EnvironmentVariable& variable : environment_table()) {
        if (!variable.is_for(table.command())) continue;
        std::string head(variable.name);
        if (variable.standing != Standing::acts)
            head += fmt::format(" [{}]", standing_text(variable.standing));
        text += wrapped(head, 2) + wrapped(variable.meaning, indent);
        if (!variable.note.empty()) text += wrapped(variable.note, indent);
    }
    return text;
}

std::string markdown_page(const ArgumentTable& table) {
    std::string page = page_opening(table);
    for (const ArgumentGroup& group : table.groups()) {
        page += fmt::format(
            "\n## {}\n\n{}\n\n| argument | kind | default | standing | meaning |\n|---|---|---|---|---|\n",
            group.title, group.introduction);
        for (const Argument& argument : group.arguments) {
            std::string meaning = cell(sentence(argument));
            if (const std::string aliases = aliases_of(table, argument, "`"); !aliases.empty())
                meaning += " Also " + aliases + ".";
            if (!argument.note.empty()) meaning += " *" + cell(argument.note) + "*";
            page += fmt::format("| `--{}` | {} | {} | {} | {} |\n", argument.name, cell(kind_text(argument)),
                                code_cell(argument.default_text), standing_text(argument.standing), meaning);
        }
    }
    page += "\n## Environment variables\n\n| variable | sets | standing | meaning |\n|---|---|---|---|\n";
    for (const EnvironmentVariable& variable : environment_table()) {
        if (!variable.is_for(table.command())) continue;
        std::string meaning = cell(variable.meaning);
        if (!variable.note.empty()) meaning += " *" + cell(variable.note) + "*";
        page += fmt::format("| `{}` | {} | {} | {} |\n", variable.name,
                            table.find(variable.sets) == nullptr ? "" : fmt::format("`--{}`", variable.sets),
                            standing_text(variable.standing), meaning);
    }
    return page;
}

}  // namespace drover
