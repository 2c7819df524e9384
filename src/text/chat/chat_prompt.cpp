#include "text/chat/chat_prompt.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "text/chat/template_files.h"

namespace drover {

ChatPrompt::ChatPrompt(ChatTemplate chat_template, std::shared_ptr<const Tokenizer> tokenizer,
                       const std::filesystem::path& folder)
    : template_(std::move(chat_template)),
      tokenizer_(std::move(tokenizer)),
      named_tokens_(named_special_tokens(folder)),
      guard_(*tokenizer_),
      special_(tokenizer_->special_tokens()) {
    std::erase_if(special_, [](const std::string& token) { return token.empty(); });
    // The longest of those that begin alike is the one that the tokenizer finds.
    std::stable_sort(special_.begin(), special_.end(),
                     [](const std::string& a, const std::string& b) { return a.size() > b.size(); });
}

std::string ChatPrompt::special_at(std::string_view text) const {
    for (const std::string& token : special_)
        if (text.starts_with(token)) return token;
    return {};
}

std::vector<TokenId> ChatPrompt::ids(const Json& messages, const Json& tools) const {
    ChatInputs inputs;
    inputs.messages = messages;
    for (Json& message : inputs.messages)
        if (message.is_object() && message.contains("content"))
            message["content"] = guard_.guarded(message["content"]);
    inputs.tools = tools;
    inputs.add_generation_prompt = true;
    inputs.special_tokens = named_tokens_;
    std::vector<TokenId> ids;
    tokenizer_->encode_guarded(template_.render(inputs).text, ids);
    return ids;
}

std::optional<TokenId> ChatPrompt::end_of_turn() const {
    const std::string answer = "An answer to look for.";
    ChatInputs inputs;
    inputs.messages = Json::array({Json{{"role", "user"}, {"content", "A question."}},
                                   Json{{"role", "assistant"}, {"content", answer}}});
    inputs.special_tokens = named_tokens_;
    std::string text;
    try {
        text = template_.render(inputs).text;
    } catch (const Error&) {
        return std::nullopt;  // it wants other messages; then only the files say what ends an answer
    }
    const std::size_t found = text.rfind(answer);
    if (found == std::string::npos) return std::nullopt;
    std::string_view rest = std::string_view(text).substr(found + answer.size());
    rest.remove_prefix(std::min(rest.find_first_not_of(" \n"), rest.size()));
    const std::string token = special_at(rest);
    std::vector<TokenId> ids;
    if (!token.empty()) tokenizer_->encode(token, SpecialTokens::omit, ids);
    return ids.size() == 1 ? std::optional(ids[0]) : std::nullopt;
}

ChatMessages ChatMessages::of(const Json& value, std::string_view place) {
    ChatMessages found;
    if (value.is_array()) found.messages = value;
    if (value.is_object()) {
        for (const char* key : {"messages", "prompt"})
            if (found.messages.is_null() && value.contains(key)) found.messages = value[key];
        found.tools = value.value("tools", Json());
    }
    const auto is_message = [](const Json& message) {
        return message.is_object() && message.contains("role") && message["role"].is_string();
    };
    if (!found.messages.is_array() || found.messages.empty() ||
        !std::all_of(found.messages.begin(), found.messages.end(), is_message))
        throw Error(fmt::format("{} has no messages.", place),
                    "Write a list such as [{\"role\": \"user\", \"content\": \"Hello\"}], or an object "
                    "with such a list as \"messages\".");
    return found;
}

}  // namespace drover
