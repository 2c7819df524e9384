#include <fmt/format.h>

#include "app/build_facts.h"
#include "app/command_help.h"
#include "app/command_words.h"
#include "app/commands.h"
#include "app/program_help.h"
#include "args/argument_table.h"
#include "args/command.h"
#include "args/man_page.h"
#include "args/roff.h"
#include "core/console.h"
#include "core/error.h"

namespace drover {
namespace {

/// What a page says it belongs to.
std::string source() {
    return "Drover " + own_build_facts().version;
}

void add_flags(RoffPage& page, const Command& command) {
    for (const FlagDescription& flag : command.flags()) {
        std::string value = flag.is_word ? "" : flag.value();
        if (!flag.default_text.empty()) value += fmt::format(" (default: {})", flag.default_text);
        page.item(flag.names_text(), value, flag.help);
    }
}

void add_description(RoffPage& page, const Command& command) {
    for (const DescriptionPart& part : description_parts(command))
        part.is_example ? page.example(part.text) : page.paragraph(part.text);
}

std::string command_page(const Command& command) {
    std::string name = command.full_name();
    for (char& letter : name)
        if (letter == ' ') letter = '-';
    RoffPage page(name, source(), summary_of(command));
    page.section("Synopsis");
    std::string words;
    for (const FlagDescription& flag : command.flags())
        if (flag.is_word) words += " " + flag.usage();
    page.lines(fmt::format("{} [options]{}{}", command.full_name(), words,
                           command.takes_words()             ? " [words]"
                           : command.command_names().empty() ? ""
                                                             : " [command]"));
    page.section("Description");
    add_description(page, command);
    const std::string footer = command.footer();
    if (footer.find('\n') != std::string::npos)
        page.lines(footer);
    else if (!footer.empty())
        page.paragraph(footer);
    page.section("Options");
    add_flags(page, command);
    for (const std::string& inner : command.command_names()) {
        const Command nested = *command.find(inner);
        page.section(nested.full_name());
        add_description(page, nested);
        add_flags(page, nested);
    }
    page.section("See also");
    page.paragraph("drover(1)");
    return page.text();
}

std::string program_page(const Command& program) {
    RoffPage page("drover", source(), "train, use and convert language models");
    page.section("Synopsis");
    page.lines("drover COMMAND [--NAME VALUE ...]\ndrover help [COMMAND [TOPIC]]");
    page.section("Description");
    page.paragraph(program.description());
    page.section("Commands");
    std::string pages;
    for (const std::string& name : program.command_names()) {
        page.item(name, "", summary_of(*program.find(name)) + ".");
        pages += fmt::format("{}drover-{}(1)", pages.empty() ? "" : ", ", name);
    }
    page.section("Exit status");
    page.item("0", "", "The command has done what it was asked for.");
    page.item("1", "", "It failed; one sentence says why and what to do.");
    page.item("2", "", "The command line is wrong.");
    page.section("See also");
    page.paragraph(pages);
    return page.text();
}

std::string page_of(const Command& program, std::vector<std::string> words) {
    if (words.empty()) return program_page(program);
    const std::vector<Command> commands = take_command(program, words);
    if (commands.empty() || commands.front().is_hidden()) throw no_such_command(program, words.front());
    if (!words.empty())
        throw UsageError(fmt::format("\"{}\" is not expected.", words.front()),
                         "Give one command: drover man COMMAND.");
    if (const ArgumentTable* table = table_of_command(commands.back().name()))
        return man_page(*table, own_build_facts().version);
    return command_page(commands.back());
}

}  // namespace

void add_man_command(const Command& app) {
    const Command command = app.add_command("man",
                                            "Print a page of the manual, for man and packages.\n"
                                            "Example: drover man run_clm | man -l -");
    command.set_footer("Arguments: [COMMAND]. Without one the page drover(1) is printed.");
    command.take_words();
    command.set_action([command, app] {
        const std::vector<std::string> words = command.words();
        if (!words.empty() && words.front().starts_with("--"))
            throw unknown_flag(command, words.front(), "Write drover man, or drover man COMMAND.");
        write_result(page_of(app, words));
    });
}

}  // namespace drover
