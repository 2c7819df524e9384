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

/// A token that is cut out of the text before anything else happens to it.
struct AddedToken {
    std::string content;
    bool single_word = false;  ///< only where no word character stands beside it
    bool lstrip = false;       ///< includes the white space before it
    bool rstrip = false;       ///< and the white space after it
    bool normalized = true;    ///< looked for in the normalized text, else in the text as it is
    bool special = false;      ///< left out by decode with skip_special

    bool operator==(const AddedToken&) const = default;
};

/// An AddedToken from its JSON object ("id" and "__type" do not matter here). `special` counts where the
/// object does not say it, and so does "normalized": as the opposite of special.
AddedToken read_added_token(const JsonFields& fields, bool special);

/// The added tokens of a tokenizer.
class AddedTokens {
  public:
    /// Adds a token, or changes the flags of one that is there. Its id is the one that the vocabulary has for
    /// its content; otherwise the next one after the vocabulary and the tokens added before.
    void add(const AddedToken& token, const Vocabulary& vocabulary);
    /// To be called after the last add; `normalizer` may be null.
    void prepare(const Normalizer* normalizer);

    std::optional<TokenId> find(std::string_view content) const;
    /// Null when the id is not that of an added token.
    const AddedToken* token(TokenId id) const;
    bool is_special(std::string_view content) const { return specials_.contains(content); }
    const std::map<TokenId, AddedToken>& by_id() const { return by_id_; }

    enum class Stage { raw, normalized };
    /// What a text is cut into: an added token, or text between them (id is nothing).
    struct Part {
        std::string_view text;
        std::optional<TokenId> id;
    };
    /// Calls `visit` for every part of `text` in order, with the added tokens that belong to this stage.
    /// Empty texts are left out.
    template <class Visit>
    void cut(std::string_view text, Stage stage, Visit&& visit) const;

  private:
    struct Found {
        std::size_t begin, end;
        TokenId id;
    };
    /// The first token at or after `from`, with the white space that it takes; `done` is where the last part
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
        visit(Part{{}, found->id});
        done = found->end;
    }
    if (done < text.size()) visit(Part{text.substr(done), std::nullopt});
}

}  // namespace drover
