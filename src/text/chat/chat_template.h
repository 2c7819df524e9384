#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include "core/json.h"
#include "text/jinja/template.h"

namespace drover {

/// What transformers' apply_chat_template is given.
struct ChatInputs {
    Json messages = Json::array();
    Json tools;      ///< an array of objects, or null
    Json documents;  ///< the same
    bool add_generation_prompt = false;
    Json special_tokens = Json::object();  ///< {"bos_token": "<s>", …}, see named_special_tokens
    Json variables = Json::object();  ///< what else the template is told, such as {"enable_thinking": false}
    /// What strftime_now takes for the time.
    std::optional<std::chrono::system_clock::time_point> now;
};

/// A conversation as a model sees it.
struct RenderedChat {
    std::string text;
    /// The bytes of `text` that {% generation %} blocks made, in the order in which the blocks ended. Blocks
    /// inside of other blocks have spans of their own. As in transformers, a block inside of a macro or of a
    /// block that is set begins where the whole text had ended when it ran.
    std::vector<jinja::Span> generated;
};

/// A chat template of a model folder: the same text as transformers' apply_chat_template makes of it.
/// Immutable: may be used from several threads at once.
class ChatTemplate {
  public:
    /// Error, with the line, if `source` is not Jinja as docs/chat-templates.md has it. `name` says where the
    /// source is from and begins every error.
    ChatTemplate(std::string_view source, std::string name) : template_(source, std::move(name)) {}

    const std::string& name() const { return template_.name(); }
    /// Whether it marks what the assistant says, which the loss on answers alone needs.
    bool has_generation() const { return template_.has_generation(); }

    /// Error if there are no messages, if the template refuses them or fails (with the line), or if it
    /// exceeds a limit.
    RenderedChat render(const ChatInputs& inputs, const jinja::Limits& limits = {}) const;

  private:
    jinja::Template template_;
};

}  // namespace drover
