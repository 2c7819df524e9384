#include <fmt/format.h>

#include "args/argument_description.h"
#include "args/argument_table.h"
#include "args/command_text.h"
#include "args/environment_table.h"
#include "args/help_text.h"

namespace drover {
namespace {

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
- The first word may name a file of arguments: YAML (`.yaml`, `.yml`) with `name: value` lines, or a
  JSON object (`.json`), for example the `training_args.json` of an earlier run. Flags after it take
  precedence ([command-line.md](command-line.md)).
)";

constexpr std::string_view how_to_write_last =
    R"(- An environment variable sets what neither the command line nor a file has set.

*acts*: it does what it says. *several processes*: it is read and checked, and acts when several
processes train together. *explained*: it is accepted, and one line says what it means here.
)";

std::string page_opening(const ArgumentTable& table) {
    const CommandText& text = command_text(table);
    return fmt::format(
        "# drover {0}\n\n<!-- Made by `drover {0} --help_markdown`. Change the tables in src/args, then run "
        "it "
        "again. -->\n\n{1}{2}{3}{4}",
        table.command(), text.page, how_to_write_first, text.notes, how_to_write_last);
}

}  // namespace

std::string markdown_page(const ArgumentTable& table) {
    std::string page = page_opening(table);
    for (const ArgumentGroup& group : table.groups()) {
        page += fmt::format(
            "\n## {}\n\n{}\n\n| argument | kind | default | standing | meaning |\n|---|---|---|---|---|\n",
            group.title, group.introduction);
        for (const Argument& argument : group.arguments) {
            if (argument.is_hidden) continue;
            std::string meaning = cell(meaning_text(argument));
            if (const std::string aliases = aliases_text(table, argument, "`"); !aliases.empty())
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
