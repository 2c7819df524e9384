#include "text/tokenizer_json.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"

namespace drover {
namespace {

/// Receives the parser's events: builds a tree of everything except model.vocab and model.merges.
class TokenizerJsonReader : public nlohmann::json_sax<Json> {
  public:
    TokenizerJsonReader(TokenizerJson& result, std::string_view where) : result_(result), where_(where) {}

    bool null() override { return value(nullptr); }
    bool boolean(bool flag) override { return value(flag); }
    bool number_integer(number_integer_t number) override { return value(number); }
    bool number_unsigned(number_unsigned_t number) override {
        if (state_ == State::vocabulary && depth_ == 3) {
            if (number > static_cast<std::uint64_t>(Vocabulary::largest_id))
                throw Error(fmt::format("{} gives the token \"{}\" the id {}.", where_, key_, number),
                            "Fetch the file again.");
            result_.vocabulary.add(key_, static_cast<TokenId>(number));
            return true;
        }
        return value(number);
    }
    bool number_float(number_float_t number, const string_t&) override { return value(number); }
    bool binary(binary_t&) override { return false; }
    bool string(string_t& text) override {
        if (state_ == State::merges) return merge_part(text);
        return value(std::move(text));
    }

    bool start_object(std::size_t) override { return open(Json::object(), true); }
    bool end_object() override { return close(); }
    bool start_array(std::size_t) override { return open(Json::array(), false); }
    bool end_array() override { return close(); }
    bool key(string_t& name) override {
        key_ = std::move(name);
        if (state_ == State::tree && open_.back()->contains(key_))
            throw Error(fmt::format("{} has the key \"{}\" twice in one object.", where_, key_),
                        "Remove one of them.");
        if (depth_ == 1) top_key_ = key_;
        return true;
    }
    bool parse_error(std::size_t place, const std::string&, const nlohmann::detail::exception&) override {
        throw Error(fmt::format("{} is not valid JSON (at byte {}).", where_, place),
                    "Fetch the file again, or fix it with `python3 -m json.tool`.");
    }

  private:
    enum class State { tree, vocabulary, merges, other_vocabulary };

    template <class Value>
    bool value(Value&& content) {
        if (state_ == State::other_vocabulary) return true;
        if (state_ == State::vocabulary)
            fail("its vocabulary holds something that is not a token with an id");
        if (state_ == State::merges) fail("its merges hold something that is not text");
        place() = std::forward<Value>(content);
        return true;
    }

    /// The location of the next value in the tree.
    Json& place() {
        if (open_.empty()) return result_.components;
        Json& parent = *open_.back();
        if (parent.is_object()) return parent[key_];
        parent.emplace_back();
        return parent.back();
    }

    bool open(Json container, bool is_object) {
        constexpr int deepest = 200;
        if (++depth_ > deepest) fail("it is nested too deep");
        if (state_ == State::tree && depth_ == 3 && top_key_ == "model" && open_.back()->is_object()) {
            if (key_ == "vocab") state_ = is_object ? State::vocabulary : State::other_vocabulary;
            if (key_ == "merges" && !is_object) state_ = State::merges;
            if (state_ != State::tree) return true;
        }
        if (state_ == State::vocabulary)
            fail("its vocabulary holds something that is not a token with an id");
        if (state_ == State::merges && (is_object || depth_ != 4))
            fail("its merges hold something that is not text");
        if (state_ == State::tree) {
            Json& here = place();
            here = std::move(container);
            open_.push_back(&here);
        }
        parts_.clear();
        return true;
    }

    bool close() {
        --depth_;
        if (state_ == State::tree) {
            open_.pop_back();
        } else if (depth_ == 2) {
            state_ = State::tree;
        } else if (state_ == State::merges) {
            if (parts_.size() != 2) fail("one of its merges does not have two parts");
            add_merge(std::move(parts_[0]), std::move(parts_[1]));
            parts_.clear();
        }
        return true;
    }

    /// Merges are pairs or, in older files, texts with a space between the two.
    bool merge_part(string_t& text) {
        if (depth_ == 4) {
            parts_.push_back(std::move(text));
            return true;
        }
        const auto space = text.find(' ');
        if (space == text.npos || text.find(' ', space + 1) != text.npos)
            fail(fmt::format("its merge \"{}\" does not have two parts", text));
        add_merge(text.substr(0, space), text.substr(space + 1));
        return true;
    }
    void add_merge(std::string left, std::string right) {
        const auto rank = static_cast<std::uint32_t>(result_.merges.size());
        result_.merges.push_back({std::move(left), std::move(right), rank});
    }

    [[noreturn]] void fail(std::string_view reason) const {
        throw Error(fmt::format("{} is not a tokenizer: {}.", where_, reason), "Fetch the file again.");
    }

    TokenizerJson& result_;
    std::string_view where_;
    State state_ = State::tree;
    int depth_ = 0;
    std::vector<Json*> open_;
    std::string key_, top_key_;
    std::vector<std::string> parts_;  // of the merge that is being read
};

/// A text as a JSON string, with quotes.
std::string json_quoted(std::string_view text) {
    return Json(text).dump();
}

}  // namespace

TokenizerJson parse_tokenizer_json(std::string_view text, std::string_view where) {
    if (text.find('\0') != std::string_view::npos)  // the parser would take it for the end
        throw Error(fmt::format("{} is not valid JSON: it holds a zero byte.", where),
                    "Fetch the file again.");
    TokenizerJson result;
    TokenizerJsonReader reader(result, where);
    Json::sax_parse(text.begin(), text.end(), &reader);
    if (!result.components.is_object())
        throw Error(fmt::format("{} is not an object.", where), "Fetch the file again.");
    return result;
}

std::string tokenizer_json_text(const TokenizerJson& tokenizer) {
    std::string text = "{";
    for (const auto& [key, value] : tokenizer.components.items())
        if (key != "model") text += fmt::format("\n  {}: {},", json_quoted(key), value.dump());
    text += "\n  \"model\": {";
    for (const auto& [key, value] : tokenizer.components.at("model").items())
        text += fmt::format("\n    {}: {},", json_quoted(key), value.dump());
    std::string_view separator;
    text += "\n    \"vocab\": {";
    tokenizer.vocabulary.for_each([&](std::string_view token, TokenId id) {
        text += fmt::format("{}\n      {}: {}", separator, json_quoted(token), id);
        separator = ",";
    });
    text += "\n    },\n    \"merges\": [";
    separator = "";
    for (const BpeModel::Merge& merge : tokenizer.merges) {
        text +=
            fmt::format("{}\n      [{}, {}]", separator, json_quoted(merge.left), json_quoted(merge.right));
        separator = ",";
    }
    return text + "\n    ]\n  }\n}\n";
}

}  // namespace drover
