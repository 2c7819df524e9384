#include "args/argument_name.h"

#include <fmt/format.h>

#include <optional>
#include <set>

#include "core/error.h"
#include "core/words.h"

namespace drover {
namespace {

std::optional<NamedArgument> find_exact(const ArgumentTable& table, std::string_view name) {
    if (const std::string_view first = table.first_name_of(name); !first.empty())
        return NamedArgument{table.find(first), false};
    if (name.starts_with("no_"))
        if (const std::string_view first = table.first_name_of(name.substr(3)); !first.empty())
            if (const Argument* argument = table.find(first); argument->type == ArgumentType::boolean)
                return NamedArgument{argument, true};
    return std::nullopt;
}

}  // namespace

NamedArgument find_written_argument(const ArgumentTable& table, std::string_view written) {
    const std::string name = with_underscores(written);
    if (const auto exact = find_exact(table, name)) return *exact;

    std::vector<std::string> candidates;
    std::set<std::pair<const Argument*, bool>> meanings;
    if (!name.empty())
        for (const std::string& known : table.names()) {
            if (!known.starts_with(name)) continue;
            const NamedArgument meaning = *find_exact(table, known);
            meanings.emplace(meaning.argument, meaning.negated);
            candidates.push_back("--" + known);
        }
    if (meanings.size() == 1) return {meanings.begin()->first, meanings.begin()->second};
    if (meanings.size() > 1)
        throw UsageError(fmt::format("--{} could be {}.", written, either_of(candidates)),
                         "Write the name out.");
    throw UsageError(fmt::format("There is no flag --{}.", written),
                     did_you_mean(name, table.names(), "--",
                                  fmt::format("`drover {} --help all` lists the flags.", table.command())));
}

const Argument* argument_of_key(const ArgumentTable& table, std::string_view key) {
    return table.find(table.first_name_of(with_underscores(key)));
}

const Argument& find_key_argument(const ArgumentTable& table, std::string_view key, std::string_view where) {
    if (const Argument* argument = argument_of_key(table, key)) return *argument;
    throw UsageError(
        fmt::format("{}: \"{}\" is no argument.", where, key),
        did_you_mean(
            with_underscores(key), table.names(), "",
            fmt::format("`drover {} --help all` lists the arguments; keys have no hyphens before them.",
                        table.command())));
}

}  // namespace drover
