#include "args/man_page.h"

#include <fmt/format.h>

#include "args/argument_description.h"
#include "args/argument_table.h"
#include "args/command_text.h"
#include "args/environment_table.h"
#include "args/roff.h"
#include "core/words.h"

namespace drover {
namespace {

void add_argument(RoffPage& page, const ArgumentTable& table, const Argument& argument) {
    std::string value = kind_text(argument);
    if (!argument.default_text.empty()) value += fmt::format(" (default: {})", argument.default_text);
    if (argument.standing != Standing::acts) value += fmt::format(" [{}]", standing_text(argument.standing));
    std::string meaning = meaning_text(argument);
    if (const std::string aliases = aliases_text(table, argument); !aliases.empty())
        meaning += " Also " + aliases + ".";
    if (argument.standing == Standing::explained) meaning += " " + std::string(argument.note);
    page.item(fmt::format("--{}", argument.name), value, meaning);
}

}  // namespace

std::string man_page(const ArgumentTable& table, std::string_view version) {
    const CommandText& words = command_text(table);
    std::string summary(words.summary);
    summary.erase(summary.find_last_not_of('.') + 1);
    RoffPage page(fmt::format("drover-{}", table.command()), fmt::format("Drover {}", version), summary);
    page.section("Synopsis");
    std::string usage;
    for (const std::string& form : split_words(words.usage, '\n'))
        usage += fmt::format("drover {} {}\n", table.command(), form);
    page.lines(usage);
    page.section("Description");
    page.paragraph(words.summary);
    page.paragraph(
        "Write --name value or --name=value. Hyphens and underscores are the same, the beginning of a name "
        "is "
        "enough when it fits only one argument, and --no_x switches a boolean off. If a flag is repeated, "
        "the "
        "last one counts; lists are added to.");
    page.paragraph(
        "The first word may name a file of arguments: YAML with name: value on each line, or a JSON object. "
        "Flags after it take precedence. An environment variable sets what neither a flag nor a file has "
        "set.");
    page.paragraph(
        "Arguments marked [several processes] act when several processes train together; those marked "
        "[explained] are accepted, and one line says what they mean here.");
    page.section("Examples");
    page.lines(words.examples);
    page.section("Options");
    for (const ArgumentGroup& group : table.groups()) {
        page.subsection(group.title);
        page.paragraph(group.introduction);
        for (const Argument& argument : group.arguments)
            if (!argument.is_hidden) add_argument(page, table, argument);
    }
    page.section("Environment");
    for (const EnvironmentVariable& variable : environment_table()) {
        if (!variable.is_for(table.command())) continue;
        std::string meaning(variable.meaning);
        if (!variable.note.empty()) meaning += " " + std::string(variable.note);
        if (table.find(variable.sets) != nullptr) meaning += fmt::format(" Sets --{}.", variable.sets);
        page.item(variable.name, "", meaning);
    }
    page.section("Exit status");
    page.item("0", "", "It has done what it was asked for, or a signal stopped it after a checkpoint.");
    page.item("1", "", "It failed; one sentence says why and what to do.");
    page.item("2", "", "The command line is wrong.");
    page.section("See also");
    page.paragraph("drover(1)");
    return page.text();
}

}  // namespace drover
