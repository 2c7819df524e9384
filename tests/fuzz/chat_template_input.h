#pragma once

#include <string_view>

#include "core/json_text.h"
#include "fuzz/accepts.h"
#include "text/chat/chat_template.h"
#include "text/utf8.h"

namespace drover::test {

/// Renders a template with a conversation: the messages and what else apply_chat_template takes as a JSON
/// object on the first line, the template on the others.
inline bool accepts_chat_template(std::string_view input) {
    return accepts([&] {
        const std::size_t end = std::min(input.find('\n'), input.size());
        const Json given = parse_json(input.substr(0, end), "input");
        if (!given.is_object()) throw Error("The first line is no object.", "Write one.");
        ChatInputs inputs;
        inputs.now = std::chrono::system_clock::time_point(std::chrono::seconds(1'700'000'000));
        inputs.special_tokens = {{"bos_token", "<s>"}, {"eos_token", "</s>"}};
        for (const auto& [name, value] : given.items()) {
            if (name == "messages")
                inputs.messages = value;
            else if (name == "tools")
                inputs.tools = value;
            else if (name == "documents")
                inputs.documents = value;
            else
                inputs.variables[name] = value;
        }
        inputs.add_generation_prompt = given.contains("prompt");
        const ChatTemplate chat_template(input.substr(std::min(end + 1, input.size())), "input");
        constexpr jinja::Limits limits{.steps = 100'000, .bytes = 2 << 20, .output = 1 << 20, .depth = 250};
        const RenderedChat chat = chat_template.render(inputs, limits);
        require(chat.text.size() <= limits.output, "the text is too long");
        require(valid_utf8_prefix(chat.text) == chat.text.size(), "the text is not UTF-8");
        for (const jinja::Span& span : chat.generated)
            require(span.begin <= span.end && span.end <= chat.text.size(), "a span is outside of the text");
        require(chat_template.render(inputs, limits).text == chat.text, "a second rendering differs");
    });
}

}  // namespace drover::test
