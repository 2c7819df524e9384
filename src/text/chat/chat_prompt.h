#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "text/chat/chat_template.h"
#include "text/chat/special_guard.h"
#include "text/tokenizer.h"

namespace drover {

/// Conversations as ids that a model answers: the template's text of the messages, ending where the answer
/// begins. Special tokens that occur in a message's content are text, not tokens: nobody can end their own
/// turn, or begin another's, by writing so.
class ChatPrompt {
  public:
    /// `folder` is the tokenizer's, which names the special tokens that the template may use.
    ChatPrompt(ChatTemplate chat_template, std::shared_ptr<const Tokenizer> tokenizer,
               const std::filesystem::path& folder);

    /// Error if the template refuses the messages. `tools` is an array or null.
    std::vector<TokenId> ids(const Json& messages, const Json& tools = {}) const;

    /// The special token that follows an answer, found by rendering one; nothing if none does.
    std::optional<TokenId> end_of_turn() const;

    const Tokenizer& tokenizer() const { return *tokenizer_; }

  private:
    /// The special token that `text` begins with; empty if it does not.
    std::string special_at(std::string_view text) const;

    ChatTemplate template_;
    std::shared_ptr<const Tokenizer> tokenizer_;
    Json named_tokens_;
    SpecialGuard guard_;
    std::vector<std::string> special_;
};

/// Messages as a user writes them down: a list of objects with "role", or an object with such a list as
/// "messages" or "prompt" and maybe "tools". Error, naming `place`, if it is neither.
struct ChatMessages {
    Json messages;
    Json tools;

    static ChatMessages of(const Json& value, std::string_view place);
};

}  // namespace drover
