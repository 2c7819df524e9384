#include "args/argument_candidates.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "args/argument_name.h"
#include "args/argument_table.h"
#include "args/help_text.h"
#include "core/error.h"
#include "core/words.h"

namespace drover {
namespace {

/// The argument that a word with hyphens names, if it takes a value from the next word.
const Argument* argument_that_takes(const ArgumentTable& table, std::string_view word) {
    if (!word.starts_with("--") || word.find('=') != std::string_view::npos) return nullptr;
    try {
        const NamedArgument named = find_written_argument(table, word.substr(2));
        return named.negated ? nullptr : named.argument;
    } catch (const UsageError&) {
        return nullptr;
    }
}

/// `before` is put in front of every value, as in "--device=".
void offer_values(Candidates& found, const Argument& argument, const std::string& before,
                  std::string_view typed) {
    if (argument.is_boolean())
        for (const char* word : {"yes", "no"}) found.offer(before + word, typed);
    for (const std::string& choice : split_words(argument.choices, '|')) found.offer(before + choice, typed);
    if (argument.is_path || argument.type == ArgumentType::json) found.files = true;
}

/// A name in the spelling that the typed word has.
std::string spelled_as(std::string name, std::string_view typed) {
    const std::string_view letters = typed.substr(std::min<std::size_t>(typed.size(), 2));
    if (letters.find('-') != std::string_view::npos && letters.find('_') == std::string_view::npos)
        std::replace(name.begin(), name.end(), '_', '-');
    return "--" + name;
}

void offer_flags(Candidates& found, const ArgumentTable& table, std::string_view typed) {
    const bool has_begun = typed.size() > 2;  // more than "--"
    for (const ArgumentGroup& group : table.groups())
        for (const Argument& argument : group.arguments) {
            const std::string name(argument.name);
            if (argument.is_hidden || (!has_begun && argument.standing == Standing::explained)) continue;
            found.offer(spelled_as(name, typed), typed, first_clause(argument.help));
            if (typed.starts_with("--no") && argument.type == ArgumentType::boolean)
                found.offer(spelled_as("no_" + name, typed), typed, "not --" + name);
        }
    if (has_begun)
        for (const ArgumentAlias& alias : table.aliases())
            found.offer(spelled_as(std::string(alias.name), typed), typed,
                        fmt::format("--{}", alias.stands_for));
}

void offer_topics(Candidates& found, const ArgumentTable& table, std::string_view typed) {
    for (std::string& topic : help_topics(table)) found.offer(std::move(topic), typed);
    if (typed.empty()) return;  // the names are hundreds
    for (const ArgumentGroup& group : table.groups())
        for (const Argument& argument : group.arguments)
            if (!argument.is_hidden)
                found.offer(std::string(argument.name), typed, first_clause(argument.help));
}

}  // namespace

void Candidates::offer(std::string word, std::string_view typed, std::string_view meaning) {
    if (word.starts_with(typed)) words.push_back({std::move(word), std::string(meaning)});
}

std::string first_clause(std::string_view text) {
    return std::string(text.substr(0, std::min(text.find_first_of(".;\n"), text.size())));
}

Candidates argument_candidates(const ArgumentTable& table, std::span<const std::string> before,
                               const std::string& typed) {
    Candidates found;
    if (const std::size_t equals = typed.find('='); equals != std::string::npos && typed.starts_with("--")) {
        if (const Argument* argument = argument_that_takes(table, typed.substr(0, equals)))
            offer_values(found, *argument, typed.substr(0, equals + 1), typed);
        return found;
    }
    const std::string last = before.empty() ? "" : before.back();
    if (last == "--help" || last == "-h") {
        offer_topics(found, table, typed);
        return found;
    }
    if (last == "--config" && &table == &sft_table()) return {.files = true};
    const Argument* argument = argument_that_takes(table, last);
    if (argument != nullptr && !typed.starts_with("--")) offer_values(found, *argument, "", typed);
    // A value must follow, unless the flag alone means something.
    if (argument != nullptr && argument->type != ArgumentType::boolean) return found;
    if (typed.empty() || typed.starts_with('-')) offer_flags(found, table, typed);
    if (before.empty() && !typed.starts_with('-')) found.files = true;  // a file of arguments
    return found;
}

}  // namespace drover
