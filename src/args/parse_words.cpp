#include "args/parse_words.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <sstream>

#include "args/argument_name.h"
#include "args/argument_value.h"
#include "core/error.h"

namespace drover {
namespace {

/// Whether a word is a flag and not a value: `-1` and a text with spaces after hyphens are values.
bool is_flag(std::string_view word) {
    if (word.size() < 2 || word[0] != '-' || number_from_text(word)) return false;
    const std::size_t end = std::min(word.find('='), word.size());
    return word.substr(0, end).find(' ') == std::string_view::npos;
}

class WordParser {
  public:
    WordParser(Arguments& arguments, std::span<const std::string> words, const ArgumentSource& source)
        : arguments_(arguments), words_(words), source_(source) {}

    void parse() {
        while (next_ < words_.size()) parse_flag(words_[next_++]);
    }

  private:
    void parse_flag(const std::string& word) {
        if (next_ == 1 && word.ends_with(".json") && !is_flag(word))
            throw UsageError(
                fmt::format(
                    "{} is given together with other words, but a file of arguments must stand alone.", word),
                fmt::format("Put the other settings into the file and give only the file: drover {} {}",
                            arguments_.table().command(), word));
        if (!is_flag(word))
            throw UsageError(fmt::format("\"{}\" is given where a flag is expected.", word),
                             "Flags start with two hyphens; quote values that hold spaces.");
        if (!word.starts_with("--"))
            throw UsageError(fmt::format("{} is not a flag.", word), "Flags start with two hyphens.");
        const std::size_t equals = word.find('=');
        const std::string written = word.substr(2, equals == std::string::npos ? equals : equals - 2);
        std::optional<std::string> value;
        if (equals != std::string::npos) value = word.substr(equals + 1);
        const NamedArgument named = find_written_argument(arguments_.table(), written);
        const std::string where = "--" + written;
        if (named.negated) {
            if (value)
                throw UsageError(fmt::format("{} takes no value.", where), "Leave out what follows the =.");
            set(*named.argument, false);
        } else if (named.argument->type == ArgumentType::words) {
            set_words(*named.argument, value, where);
        } else {
            if (!value && next_ < words_.size() && !is_flag(words_[next_])) value = words_[next_++];
            if (!value && named.argument->type == ArgumentType::boolean) value = "yes";
            if (!value)
                throw UsageError(fmt::format("{} needs a value.", where),
                                 named.argument->type == ArgumentType::optional_boolean
                                     ? "Write yes or no after it."
                                     : "Write it behind the flag.");
            set(*named.argument, value_from_text(*named.argument, *value, where));
        }
    }

    void set_words(const Argument& argument, const std::optional<std::string>& first,
                   const std::string& where) {
        Json list = collected_.contains(&argument) ? Json(arguments_.words(argument.name)) : Json::array();
        const auto add = [&](const std::string& text) {
            for (const Json& word : value_from_text(argument, text, where)) list.push_back(word);
        };
        if (first) {
            add(*first);
        } else {
            if (next_ == words_.size() || is_flag(words_[next_]))
                throw UsageError(fmt::format("{} needs one or more words.", where),
                                 "Write them after the flag.");
            while (next_ < words_.size() && !is_flag(words_[next_])) add(words_[next_++]);
        }
        collected_.insert(&argument);
        set(argument, std::move(list));
    }

    void set(const Argument& argument, Json value) {
        arguments_.set(argument.name, std::move(value), source_);
    }

    Arguments& arguments_;
    std::span<const std::string> words_;
    const ArgumentSource& source_;
    std::size_t next_ = 0;
    std::set<const Argument*> collected_;  ///< lists started by these words
};

}  // namespace

void parse_words(Arguments& arguments, std::span<const std::string> words, const ArgumentSource& source) {
    WordParser(arguments, words, source).parse();
}

void parse_json_arguments(Arguments& arguments, const Json& object, const std::string& file) {
    if (!object.is_object())
        throw UsageError(fmt::format("{} does not hold a JSON object.", file),
                         "Write the arguments as {\"name\": value, …}.");
    std::set<const Argument*> seen;
    for (const auto& [key, value] : object.items()) {
        const Argument& argument = find_key_argument(arguments.table(), key, file);
        if (!seen.insert(&argument).second)
            throw UsageError(fmt::format("{} gives {} twice, under two names.", file, argument.name),
                             "Remove one of them.");
        if (value.is_null()) continue;
        Json read = value_from_json(argument, value, fmt::format("{}: {}", file, key));
        if (read == default_value(argument)) continue;
        arguments.set(argument.name, std::move(read), {ArgumentSource::Kind::file, file});
    }
}

std::vector<std::string> words_of_file(const std::filesystem::path& path) {
    std::istringstream text(read_text_file(path));
    std::vector<std::string> words;
    for (std::string word; text >> word;) words.push_back(word);
    return words;
}

bool asks_for_help(std::span<const std::string> words) {
    return std::any_of(words.begin(), words.end(), [](const std::string& word) {
        return word == "-h" || word == "--help" || word == "--help_markdown" || word == "--help-markdown";
    });
}

}  // namespace drover
