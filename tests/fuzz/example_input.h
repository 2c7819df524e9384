#pragma once

#include <string_view>

#include "core/json_text.h"
#include "data/conversation/example.h"
#include "fuzz/accepts.h"

namespace drover::test {

/// Reads a row of a dataset as the format that its keys are of, and as every other.
inline bool accepts_example(std::string_view input) {
    const auto read = [&](ExampleFormat format) {
        const Example example = read_example(input, format, "text");
        require(example.messages.is_array() && example.prompt_messages <= example.messages.size(),
                "a prompt is part of the messages");
        require(example.is_conversation() == !example.messages.empty(), "a conversation has messages");
        for (const Json& message : example.messages)
            require(message.is_object() && message["role"].is_string(), "a message has a role");
        require(example.tools.is_null() || example.tools.is_array(), "tools are a list");
        require(example.variables.is_object(), "variables have names");
    };
    const bool found = accepts([&] {
        std::vector<std::string> columns;
        const Json row = parse_json(input, "input");
        if (!row.is_object()) throw Error("The row is no object.", "Write one.");
        for (const auto& [key, value] : row.items()) columns.push_back(key);
        const ExampleFormat format = find_example_format(columns, "text", "input");
        require(!format_line(format, columns, "text").empty(), "a format is said");
        read(format);
    });
    for (const ExampleFormat format :
         {ExampleFormat::messages, ExampleFormat::share_gpt, ExampleFormat::prompt_completion,
          ExampleFormat::alpaca, ExampleFormat::text})
        accepts([&] { read(format); });
    return found;
}

}  // namespace drover::test
