#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "text/json_fields.h"
#include "text/normalizer.h"
#include "text/token_trie.h"
#include "text/vocabulary.h"

namespace drover {

/// A token that is cut out of the text before any other step.
struct AddedToken {
    std::string content;
    bool single_word = false;  ///< only if no word character is next to it
    bool lstrip = false;       ///< includes the white space before it
    bool rstrip = false;       ///< and the white space after it
    bool normalized = true;    ///< searched for in the normalized text, otherwise in the original text
    bool special = false;      ///< left out by decode with skip_special

    bool operator==(const AddedToken&) const = default;
};

/// An AddedToken from its JSON object ("id" and "__type" are not used here). `special` is used if the object
/// does not have it; "normalized" then defaults to the opposite of special.
AddedToken read_added_token(const JsonFields& fields, bool special);

/// The added tokens of a tokenizer.
class AddedTokens {
  public:
    /// Adds a token, or changes the flags of an existing one. Its id is the vocabulary's for its content,
    /// otherwise the next one after the vocabulary and the tokens added before.
    void add(const AddedToken& token, const Vocabulary& vocabulary);
    /// Must be called after the last add; `normalizer` may be null.
    void prepare(const Normalizer* normalizer);

    std::optional<TokenId> find(std::string_view content) const;
    /// Null if the id is not that of an added token.
    const AddedToken* token(TokenId id) const;
    bool is_special(std::string_view content) const { return specials_.contains(content); }
    const std::map<TokenId, AddedToken>& by_id() const { return by_id_; }

    enum class Stage { raw, normalized };
    /// A part of a text: an added token, with the white space that it includes, or the text between two of
    /// them (without an id).
    struct Part {
        std::string_view text;
        std::optional<TokenId> id;
    };
    /// Calls `visit` for every part of `text` in order, splitting at the added tokens of this stage. Empty
    /// texts are left out.
    template <class Visit>
    void cut(std::string_view text, Stage stage, Visit&& visit) const;

  private:
    struct Found {
        std::size_t begin, end;
        TokenId id;
    };
    /// The first token at or after `from`, with the white space it includes; `done` is where the last part
    /// ended.
    std::optional<Found> next(std::string_view text, const TokenTrie& trie, std::size_t& from,
                              std::size_t done) const;

    std::map<std::string, TokenId, std::less<>> ids_;
    std::map<TokenId, AddedToken> by_id_;
    std::set<std::string, std::less<>> specials_;
    TokenTrie raw_, normalized_;
};

template <class Visit>
void AddedTokens::cut(std::string_view text, Stage stage, Visit&& visit) const {
    const TokenTrie& trie = stage == Stage::raw ? raw_ : normalized_;
    std::size_t done = 0, from = 0;
    while (!trie.empty() && from < text.size()) {
        const auto found = next(text, trie, from, done);
        if (!found) break;
        if (found->begin > done) visit(Part{text.substr(done, found->begin - done), std::nullopt});
        visit(Part{text.substr(found->begin, found->end - found->begin), found->id});
        done = found->end;
    }
    if (done < text.size()) visit(Part{text.substr(done), std::nullopt});
}

}  // namespace drover
