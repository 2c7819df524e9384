#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "text/chat/chat_template.h"

namespace drover {

/// A template and where it is from.
struct ChatTemplateText {
    std::string name;   ///< "default", "tool_use", …
    std::string where;  ///< the file, and the key in it
    std::string text;
};

/// The chat templates of a model folder. Those of chat_template.jinja ("default") and
/// additional_chat_templates/*.jinja; if there are no such files, those of "chat_template" in
/// tokenizer_config.json, which is one template ("default") or a list of {"name", "template"}. Empty if the
/// folder has none.
std::vector<ChatTemplateText> find_chat_templates(const std::filesystem::path& folder);

/// The template that transformers would use: the one called `name` if that is not empty; else "tool_use" for
/// conversations with tools, if there is one; else "default". Error if there is none of them.
const ChatTemplateText& choose_chat_template(const std::vector<ChatTemplateText>& templates,
                                             const std::filesystem::path& folder, bool with_tools,
                                             std::string_view name = {});

/// Reads the template of a model folder, chosen in that way, or a file that is one.
ChatTemplate load_chat_template(const std::filesystem::path& path, bool with_tools = false,
                                std::string_view name = {});

/// bos_token, eos_token and the other roles that the files of a tokenizer's folder name, with their texts.
Json named_special_tokens(const std::filesystem::path& folder);

}  // namespace drover
