#pragma once

#include <string_view>

#include "core/json.h"
#include "text/token_trie.h"
#include "text/tokenizer.h"

namespace drover {

/// Keeps special tokens that are spelled in the texts of messages from becoming tokens: nobody can end their
/// own turn, or begin another's, by writing so. See Tokenizer::encode_guarded().
class SpecialGuard {
  public:
    explicit SpecialGuard(const Tokenizer& tokenizer);

    /// Whether some text in `value`, at any depth, spells a special token.
    bool is_needed(const Json& value) const;
    /// The same value with a guard in every special token of its texts.
    Json guarded(const Json& value) const;

  private:
    std::string guarded_text(std::string_view text) const;

    TokenTrie special_;
};

}  // namespace drover
