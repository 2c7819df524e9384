#include "args/parse_words.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <sstream>

#include "args/argument_name.h"
#include "args/argument_value.h"
#include "core/error.h"
#include "core/text_file.h"

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
        if (!is_flag(word))
            throw UsageError(fmt::format("\"{}\" is given where a flag is expected.", word),
                             word.ends_with(".json") || word.ends_with(".yaml") || word.ends_with(".yml")
                                 ? "A file of arguments stands before all flags."
                                 : "Flags start with two hyphens; quote values that hold spaces.");
        if (word == "-v" && arguments_.table().find("verbose") != nullptr)
            return set(*arguments_.table().find("verbose"), true);
        if (!word.starts_with("--"))
            throw UsageError(fmt::format("{} is not a flag.", word), "Flags start with two hyphens.");
        const std::size_t equals = word.find('=');
        const std::string written = word.substr(2, equals == std::string::npos ? equals : equals - 2);
        std::optional<std::string> value;
        if (equals != std::string::npos) value = word.substr(equals + 1);
        refuse_config(written, value);
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
                                     : "Write it after the flag.");
            set(*named.argument, value_from_text(*named.argument, *value, where));
        }
    }

    /// Only TRL's script has --config FILE.
    void refuse_config(const std::string& written, const std::optional<std::string>& value) const {
        if (written != "config") return;
        const std::string file = value ? *value : next_ < words_.size() ? words_[next_] : "";
        if (file.ends_with(".yaml") || file.ends_with(".yml"))
            throw UsageError(
                fmt::format("`drover {}` has no flag --config.", arguments_.table().command()),
                fmt::format("Write the file first: drover {} {}.", arguments_.table().command(), file));
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

std::vector<std::string> words_of_file(const std::filesystem::path& path) {
    std::istringstream text(read_text_file(path));
    std::vector<std::string> words;
    for (std::string word; text >> word;) words.push_back(word);
    return words;
}

}  // namespace drover
