#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "data/conversation/sft_options.h"

namespace drover {

/// What the columns of a dataset hold.
enum class ExampleFormat {
    messages,           ///< "messages": a conversation
    share_gpt,          ///< "conversations": a conversation of {"from", "value"} or {"role", "content"}
    prompt_completion,  ///< "prompt" and "completion": texts or messages
    alpaca,             ///< "instruction" and "output", with "input", "system" and "history"
    text,               ///< a column of plain text
};

/// The columns that an example may be made of; others are not read. `text_field` is the column of plain text.
std::vector<std::string> example_columns(std::string_view text_field);

/// The format of rows with these columns. Error if they have none of the formats, or are pairs to prefer one
/// of; `file` names the dataset in it.
ExampleFormat find_example_format(const std::vector<std::string>& columns, std::string_view text_field,
                                  std::string_view file);

/// A line that says what was found: "Rows are conversations (column \"messages\")."
std::string format_line(ExampleFormat format, const std::vector<std::string>& columns,
                        std::string_view text_field);

/// A row of a dataset.
struct Example {
    enum class Kind {
        text,              ///< `text`
        completion_text,   ///< `prompt_text` and `text`, the completion
        messages,          ///< `messages`
        prompt_completion  ///< `messages`, of which the first `prompt_messages` are the prompt
    };
    Kind kind = Kind::text;
    std::string text;
    std::string prompt_text;
    Json messages = Json::array();  ///< {"role", "content", …}
    std::size_t prompt_messages = 0;
    Json tools;                       ///< an array, or null
    Json variables = Json::object();  ///< chat_template_kwargs

    bool is_conversation() const { return kind == Kind::messages || kind == Kind::prompt_completion; }
};

/// Reads a row, which is a JSON object. The Error does not say which row it is.
Example read_example(std::string_view row, ExampleFormat format, std::string_view text_field);

}  // namespace drover
