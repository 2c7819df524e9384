#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace drover {

class ArgumentTable;
struct CommonGroup;

constexpr std::size_t help_columns = 100;

/// What a command line that asks for help wants to see.
struct HelpRequest {
    bool is_page = false;  ///< --help_markdown: the command's page in docs/
    std::string topic{};   ///< the word after --help; empty: none
};

/// Absent if the words do not ask for help. The word after `--help` is its topic, unless that is a flag with
/// more words after it.
std::optional<HelpRequest> help_request(std::span<const std::string> words);

/// What the request asks for: a screen with the arguments that people use most; for the topic `all` every
/// argument; for a group's name its arguments; for an argument's name, in any spelling, that argument; for an
/// environment variable's name what it does. UsageError suggests names for an unknown topic.
std::string help_answer(const ArgumentTable& table, const HelpRequest& request);

/// Every topic of help_answer() but the arguments: "all", groups and "environment".
std::vector<std::string> help_topics(const ArgumentTable& table);

/// The arguments used most, at most 40 lines of 100 columns.
std::string short_help(const ArgumentTable& table);

/// What the short help shows of an argument beside its name and meaning.
struct ShownValue {
    std::string placeholder;  ///< what stands for its value: "N", "no|steps|epoch"; empty: it needs none
    std::string remark;       ///< its default, or that it is required
};

/// The groups of a short help, a line for each argument.
std::string common_lines(std::span<const CommonGroup> groups,
                         const std::function<ShownValue(std::string_view name)>& value_of);

/// The end of a short help: what may follow `command --help`, which is `word` or one of the topics.
std::string more_lines(std::string_view command, std::string_view word,
                       const std::vector<std::string>& topics);

/// Every argument with its kind, default and description, by group, at most 100 columns wide.
std::string help_text(const ArgumentTable& table);

/// The command's page in docs/.
std::string markdown_page(const ArgumentTable& table);

}  // namespace drover
