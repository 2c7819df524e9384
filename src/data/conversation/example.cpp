#include "data/conversation/example.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <utility>

#include "core/error.h"
#include "core/json_text.h"

namespace drover {
namespace {

constexpr const char* formats_remedy =
    "Give rows with \"messages\", \"conversations\", \"prompt\" and \"completion\", \"instruction\" and "
    "\"output\", or the column that --dataset_text_field names.";

bool has_column(const std::vector<std::string>& columns, std::string_view column) {
    return std::find(columns.begin(), columns.end(), column) != columns.end();
}

/// The value of a column; null if it is absent.
const Json& at(const Json& row, const char* column) {
    static const Json none;
    const auto found = row.find(column);
    return found == row.end() ? none : *found;
}

std::string_view kind_of(const Json& value) {
    if (value.is_null()) return "missing";
    if (value.is_boolean()) return "true or false";
    return value.is_string()   ? "a text"
           : value.is_number() ? "a number"
           : value.is_array()  ? "a list"
                               : "an object";
}

[[noreturn]] void fail_value(std::string_view column, const Json& value, std::string_view wanted) {
    throw Error(fmt::format("\"{}\" is {}, not {}.", column, kind_of(value), wanted),
                "Mend the row, or take it out.");
}

/// A text that may be missing, as empty.
std::string optional_text(const Json& row, const char* column) {
    const Json& value = at(row, column);
    if (value.is_null()) return {};
    if (!value.is_string()) fail_value(column, value, "a text");
    return value.get<std::string>();
}

std::string required_text(const Json& row, const char* column) {
    const Json& value = at(row, column);
    if (!value.is_string()) fail_value(column, value, "a text");
    return value.get<std::string>();
}

/// Files that cannot hold lists, such as CSV, have them as JSON texts.
Json parsed_if_text(const Json& value, std::string_view column, char opening) {
    if (!value.is_string()) return value;
    const std::string& text = value.get_ref<const std::string&>();
    const std::size_t first = text.find_first_not_of(" \t\r\n");
    if (first == std::string::npos || text[first] != opening) return value;
    return parse_json(text, fmt::format("the text of \"{}\"", column));
}

/// What a conversation's author of an entry is called in chat templates.
std::string role_of(const std::string& from) {
    constexpr std::array<std::pair<std::string_view, std::string_view>, 6> names{{
        {"human", "user"},
        {"gpt", "assistant"},
        {"chatgpt", "assistant"},
        {"bot", "assistant"},
        {"observation", "tool"},
        {"function_response", "tool"},
    }};
    for (const auto& [name, role] : names)
        if (from == name) return std::string(role);
    return from;
}

/// {"name", "arguments"} as chat templates want it.
Json tool_call(Json call) {
    if (!call.is_object() || !call.contains("name"))
        throw Error("A function call has no \"name\".",
                    "Write it as {\"name\": …, \"arguments\": {…}}, or as a list of these.");
    if (call.contains("arguments")) call["arguments"] = parsed_if_text(call["arguments"], "arguments", '{');
    return {{"type", "function"}, {"function", std::move(call)}};
}

/// A message of {"from", "value"}.
Json converted_message(const Json& entry) {
    const std::string from = required_text(entry, "from");
    if (from == "function_call") {
        const Json calls = parse_json(required_text(entry, "value"), "a function call");
        Json message = {{"role", "assistant"}, {"content", ""}, {"tool_calls", Json::array()}};
        if (calls.is_array())
            for (const Json& call : calls) message["tool_calls"].push_back(tool_call(call));
        else
            message["tool_calls"].push_back(tool_call(calls));
        return message;
    }
    Json message = {{"role", role_of(from)}, {"content", at(entry, "value")}};
    for (const auto& [key, value] : entry.items())
        if (key != "from" && key != "value") message[key] = value;
    return message;
}

/// The list of messages in a column.
Json messages_of(const Json& row, const char* column) {
    const Json list = parsed_if_text(at(row, column), column, '[');
    if (!list.is_array()) fail_value(column, list, "a list of messages");
    Json messages = Json::array();
    for (const Json& member : list) {
        const Json entry = parsed_if_text(member, column, '{');
        if (!entry.is_object()) fail_value(column, entry, "a list of messages");
        messages.push_back(entry.contains("from") ? converted_message(entry) : entry);
        if (!at(messages.back(), "role").is_string())
            throw Error(fmt::format("Message {} of \"{}\" has no \"role\".", messages.size(), column),
                        "Give every message a \"role\", such as user or assistant.");
    }
    if (messages.empty())
        throw Error(fmt::format("\"{}\" has no messages.", column), "Mend the row, or take it out.");
    return messages;
}

Json message(const char* role, std::string content) {
    return {{"role", role}, {"content", std::move(content)}};
}

/// Instruction and input are the question; earlier exchanges precede it.
void read_alpaca(const Json& row, Example& example) {
    example.kind = Example::Kind::prompt_completion;
    if (std::string system = optional_text(row, "system"); !system.empty())
        example.messages.push_back(message("system", std::move(system)));
    const Json history = parsed_if_text(at(row, "history"), "history", '[');
    if (!history.is_null() && !history.is_array()) fail_value("history", history, "a list of pairs");
    for (const Json& pair : history) {
        if (!pair.is_array() || pair.size() != 2 || !pair[0].is_string() || !pair[1].is_string())
            fail_value("history", pair, "a list of pairs of texts");
        example.messages.push_back(message("user", pair[0].get<std::string>()));
        example.messages.push_back(message("assistant", pair[1].get<std::string>()));
    }
    std::string question = required_text(row, "instruction");
    if (const std::string input = optional_text(row, "input"); !input.empty())
        question += (question.empty() ? "" : "\n") + input;
    example.messages.push_back(message("user", std::move(question)));
    example.prompt_messages = example.messages.size();
    example.messages.push_back(message("assistant", required_text(row, "output")));
}

void read_prompt_completion(const Json& row, Example& example) {
    const bool texts = at(row, "prompt").is_string() && at(row, "completion").is_string();
    if (texts) {
        example.kind = Example::Kind::completion_text;
        example.prompt_text = required_text(row, "prompt");
        example.text = required_text(row, "completion");
        return;
    }
    example.kind = Example::Kind::prompt_completion;
    example.messages = messages_of(row, "prompt");
    example.prompt_messages = example.messages.size();
    for (Json& answer : messages_of(row, "completion")) example.messages.push_back(std::move(answer));
}

void read_conversation(const Json& row, const char* column, Example& example) {
    example.kind = Example::Kind::messages;
    example.messages = messages_of(row, column);
}

/// ShareGPT's form may have the system message in a column of its own.
void read_share_gpt(const Json& row, Example& example) {
    read_conversation(row, row.contains("conversations") ? "conversations" : "conversation", example);
    std::string system = optional_text(row, "system");
    if (!system.empty() && example.messages[0]["role"] != "system")
        example.messages.insert(example.messages.begin(), message("system", std::move(system)));
}

}  // namespace

std::vector<std::string> example_columns(std::string_view text_field) {
    std::vector<std::string> columns{
        "messages", "conversations",       "conversation", "prompt", "completion", "chosen",
        "rejected", "instruction",         "input",        "output", "system",     "history",
        "tools",    "chat_template_kwargs"};
    if (!has_column(columns, text_field)) columns.emplace_back(text_field);
    return columns;
}

ExampleFormat find_example_format(const std::vector<std::string>& columns, std::string_view text_field,
                                  std::string_view file) {
    const auto has = [&](std::string_view column) { return has_column(columns, column); };
    if (has("chosen") && has("rejected"))
        throw Error(fmt::format("{} has pairs of answers (\"chosen\", \"rejected\") to learn a preference "
                                "from, which is not fine-tuning.",
                                file),
                    "Keep the preferred answers, as rows of \"messages\".");
    if (has("image") || has("images"))
        throw Error(fmt::format("{} has images, and only text is trained on.", file),
                    "Use a dataset of text, or take the column out.");
    if (has("prompt") && has("completion")) return ExampleFormat::prompt_completion;
    if (has("messages")) return ExampleFormat::messages;
    if (has("conversations") || has("conversation")) return ExampleFormat::share_gpt;
    if (has("instruction") && has("output")) return ExampleFormat::alpaca;
    if (has(text_field)) return ExampleFormat::text;
    throw Error(
        fmt::format("The columns of {} are of no format that is known: {}.", file, fmt::join(columns, ", ")),
        formats_remedy);
}

std::string format_line(ExampleFormat format, const std::vector<std::string>& columns,
                        std::string_view text_field) {
    const std::string tools = has_column(columns, "tools") ? ", with tools" : "";
    switch (format) {
        case ExampleFormat::messages:
            return fmt::format("Rows are conversations (column \"messages\"){}.", tools);
        case ExampleFormat::share_gpt:
            return fmt::format("Rows are conversations in ShareGPT's form (column \"{}\"){}.",
                               has_column(columns, "conversations") ? "conversations" : "conversation",
                               tools);
        case ExampleFormat::prompt_completion:
            return fmt::format("Rows are prompts with completions (columns \"prompt\", \"completion\"){}.",
                               tools);
        case ExampleFormat::alpaca:
            return "Rows are instructions with answers in Alpaca's form (columns \"instruction\", "
                   "\"output\").";
        case ExampleFormat::text:
            return fmt::format("Rows are plain text (column \"{}\").", text_field);
    }
    bug("an unknown format of examples");
}

Example read_example(std::string_view row, ExampleFormat format, std::string_view text_field) {
    const Json object = parse_json(row, "the row");
    if (!object.is_object())
        throw Error("The row is not a JSON object.", "Write it as {\"column\": value, …}.");
    Example example;
    switch (format) {
        case ExampleFormat::messages:
            read_conversation(object, "messages", example);
            break;
        case ExampleFormat::share_gpt:
            read_share_gpt(object, example);
            break;
        case ExampleFormat::prompt_completion:
            read_prompt_completion(object, example);
            break;
        case ExampleFormat::alpaca:
            read_alpaca(object, example);
            break;
        case ExampleFormat::text:
            example.text = required_text(object, std::string(text_field).c_str());
            break;
    }
    if (!example.is_conversation()) return example;
    example.tools = parsed_if_text(at(object, "tools"), "tools", '[');
    if (example.tools.is_string() && example.tools.get_ref<const std::string&>().empty())
        example.tools = nullptr;
    if (example.tools.is_array())
        for (Json& tool : example.tools) tool = parsed_if_text(tool, "tools", '{');
    if (!example.tools.is_null() && !example.tools.is_array())
        fail_value("tools", example.tools, "a list of functions");
    if (const Json variables =
            parsed_if_text(at(object, "chat_template_kwargs"), "chat_template_kwargs", '{');
        !variables.is_null()) {
        if (!variables.is_object()) fail_value("chat_template_kwargs", variables, "an object");
        example.variables = variables;
    }
    return example;
}

}  // namespace drover
