#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "app/interrupts.h"
#include "generate/generator.h"
#include "text/chat/chat_prompt.h"

namespace drover {

/// The flags of `drover generate` that make it a chat.
struct ChatOptions {
    bool chat = false;
    std::string messages;             ///< file with messages, "-" for standard input; empty: not given
    std::string system;               ///< what the system message says; empty: there is none
    std::string template_path;        ///< file or folder of the chat template; empty: the tokenizer's folder
    std::int64_t context_length = 0;  ///< tokens of the whole conversation; 0: default_context_length

    bool wanted() const { return chat || !messages.empty(); }
};

/// More positions than this take much memory, and few conversations need them.
inline constexpr std::int64_t default_context_length = 4096;

/// A conversation with a model: on the terminal, or one answer to given messages.
class Chat {
  public:
    /// Reads the template and, unless it is a conversation on a terminal, the messages. `folder` is the
    /// tokenizer's. Error if there is no template. Create it before any thread that computes.
    Chat(const ChatOptions& options, std::shared_ptr<const Tokenizer> tokenizer,
         const std::filesystem::path& folder);

    /// Whether questions are typed; otherwise answer_once() answers what was given.
    bool is_conversation() const { return !given_; }
    /// What an answer ends with: `ends`, the tokenizer's EOS and the token that the template puts behind one.
    std::vector<TokenId> ends(std::vector<TokenId> ends) const;
    /// The ids of the given messages.
    std::vector<TokenId> prompt() const;

    /// Talks until Ctrl-D, Ctrl-C at the prompt or /exit.
    void converse(Generator& generator, const GenerationSettings& settings, std::int64_t capacity);

  private:
    ChatMessages read_messages(const std::string& file) const;

    ChatOptions options_;
    std::shared_ptr<const Tokenizer> tokenizer_;
    ChatPrompt prompt_;
    std::optional<ChatMessages> given_;
    std::unique_ptr<Interrupts> interrupts_;  // of a conversation
};

}  // namespace drover
