#include "data/conversation/example.h"

#include <gtest/gtest.h>

#include "support/errors.h"

namespace drover {
namespace {

Example example_of(const char* row, ExampleFormat format) {
    return read_example(row, format, "text");
}

TEST(ExampleFormat, IsFoundFromTheColumns) {
    const auto find = [](std::vector<std::string> columns) {
        return find_example_format(columns, "quote", "data.json");
    };
    EXPECT_EQ(find({"id", "messages"}), ExampleFormat::messages);
    EXPECT_EQ(find({"messages", "prompt"}), ExampleFormat::messages);
    EXPECT_EQ(find({"completion", "messages", "prompt"}), ExampleFormat::prompt_completion);
    EXPECT_EQ(find({"conversations", "tools"}), ExampleFormat::share_gpt);
    EXPECT_EQ(find({"instruction", "input", "output"}), ExampleFormat::alpaca);
    EXPECT_EQ(find({"quote", "text"}), ExampleFormat::text);
}

TEST(ExampleFormat, IsSaid) {
    EXPECT_EQ(format_line(ExampleFormat::messages, {"messages", "tools"}, "text"),
              "Rows are conversations (column \"messages\"), with tools.");
    EXPECT_EQ(format_line(ExampleFormat::text, {"quote"}, "quote"),
              "Rows are plain text (column \"quote\").");
}

TEST(ExampleFormat, RefusesWhatIsNotTrainedHere) {
    test::expect_error(
        [] {
            find_example_format({"prompt", "chosen", "rejected"}, "text", "data.json");
        },
        {"preference"});
    test::expect_error([] { find_example_format({"messages", "images"}, "text", "data.json"); }, {"images"});
    test::expect_error(
        [] {
            find_example_format({"a", "b"}, "text", "data.json");
        },
        {"The columns of data.json are of no format that is known: a, b."});
    test::expect_error([] { find_example_format({"text"}, "quote", "data.json"); }, {"text"});
}

TEST(Example, AlpacaIsAConversationWithAnAnswer) {
    const Example example =
        example_of(R"({"instruction": "Add.", "input": "1, 2", "output": "3", "system": "Count.",
                       "history": [["Hi", "Hello"]]})",
                   ExampleFormat::alpaca);
    EXPECT_EQ(example.kind, Example::Kind::prompt_completion);
    EXPECT_EQ(example.messages.dump(),
              R"([{"role":"system","content":"Count."},{"role":"user","content":"Hi"},)"
              R"({"role":"assistant","content":"Hello"},{"role":"user","content":"Add.\n1, 2"},)"
              R"({"role":"assistant","content":"3"}])");
    EXPECT_EQ(example.prompt_messages, 4u);
}

TEST(Example, ShareGptsNamesBecomeRoles) {
    const Example example = example_of(
        R"({"system": "Count.", "conversations": [{"from": "human", "value": "a"},
            {"from": "function_call", "value": "{\"name\": \"f\", \"arguments\": {\"x\": 1}}"},
            {"from": "observation", "value": "2"}, {"from": "gpt", "value": "b", "weight": 1}]})",
        ExampleFormat::share_gpt);
    EXPECT_EQ(example.messages.dump(),
              R"([{"role":"system","content":"Count."},{"role":"user","content":"a"},)"
              R"({"role":"assistant","content":"","tool_calls":[{"type":"function",)"
              R"("function":{"name":"f","arguments":{"x":1}}}]},{"role":"tool","content":"2"},)"
              R"({"role":"assistant","content":"b","weight":1}])");
}

TEST(Example, ASystemColumnBesideMessagesIsNotRead) {
    const Example example = example_of(
        R"({"system": "Count.", "messages": [{"role": "user", "content": "a"}]})", ExampleFormat::messages);
    EXPECT_EQ(example.messages.dump(), R"([{"role":"user","content":"a"}])");
}

TEST(Example, ListsMayBeJsonInText) {
    const Example example = example_of(
        R"({"messages": "[{\"role\": \"user\", \"content\": \"a\"}]", "tools": "[{\"name\": \"f\"}]"})",
        ExampleFormat::messages);
    EXPECT_EQ(example.messages.dump(), R"([{"role":"user","content":"a"}])");
    EXPECT_EQ(example.tools.dump(), R"([{"name":"f"}])");
}

TEST(Example, ErrorsSayWhatIsWrong) {
    const auto refused = [](const char* row, ExampleFormat format, const char* words) {
        test::expect_error([&] { example_of(row, format); }, {words});
    };
    refused("[1]", ExampleFormat::text, "The row is not a JSON object.");
    refused(R"({"text": null})", ExampleFormat::text, "\"text\" is missing, not a text.");
    refused(R"({"text": 3})", ExampleFormat::text, "\"text\" is a number, not a text.");
    refused(R"({"messages": []})", ExampleFormat::messages, "\"messages\" has no messages.");
    refused(R"({"messages": [{"content": "a"}]})", ExampleFormat::messages,
            "Message 1 of \"messages\" has no \"role\".");
    refused(R"({"conversations": [{"from": "function_call", "value": "f of 1"}]})", ExampleFormat::share_gpt,
            "a function call");
    refused(R"({"prompt": "a", "completion": [{"role": "assistant", "content": "b"}]})",
            ExampleFormat::prompt_completion, "\"prompt\" is a text, not a list of messages.");
    refused(R"({"instruction": "a", "output": "b", "history": [["c"]]})", ExampleFormat::alpaca, "history");
    refused(R"({"messages": [{"role": "user", "content": "a"}], "tools": 3})", ExampleFormat::messages,
            "\"tools\" is a number, not a list of functions.");
}

}  // namespace
}  // namespace drover
