// Every template of tests/golden/text/chat with every conversation, compared with transformers'
// apply_chat_template (tools/oracle/chat_templates.py).
#include <gtest/gtest.h>
#include <zlib.h>

#include <cstdlib>
#include <ctime>

#include "core/error.h"
#include "core/json_text.h"
#include "core/text_file.h"
#include "support/golden.h"
#include "text/chat/chat_template.h"

namespace drover {
namespace {

using test::golden_path;

Json read_compressed_json(const std::filesystem::path& path) {
    gzFile file = gzopen(path.c_str(), "rb");
    if (!file) throw Error(path.string() + " cannot be read.", "Make it again.");
    std::string text;
    char buffer[1 << 16];
    for (int read = 0; (read = gzread(file, buffer, sizeof buffer)) > 0;)
        text.append(buffer, static_cast<std::size_t>(read));
    gzclose(file);
    return parse_json(text, path.string());
}

ChatInputs inputs_of(const Json& conversation, const Json& golden) {
    ChatInputs inputs;
    inputs.special_tokens = golden.at("special_tokens");
    inputs.now = std::chrono::system_clock::time_point(
        std::chrono::milliseconds(static_cast<std::int64_t>(golden.at("now").get<double>() * 1000)));
    for (const auto& [name, value] : conversation.items()) {
        if (name == "messages")
            inputs.messages = value;
        else if (name == "tools")
            inputs.tools = value;
        else if (name == "documents")
            inputs.documents = value;
        else if (name == "add_generation_prompt")
            inputs.add_generation_prompt = value;
        else
            inputs.variables[name] = value;
    }
    return inputs;
}

Json spans_of(const RenderedChat& chat) {
    Json spans = Json::array();
    for (const jinja::Span& span : chat.generated) spans.push_back({span.begin, span.end});
    return spans;
}

/// What a template said when it refused, without its punctuation; empty if it failed otherwise.
std::string refusal(const std::string& error) {
    constexpr std::string_view begin = "TemplateError: ";
    if (!error.starts_with(begin)) return {};
    std::string message = error.substr(begin.size());
    while (!message.empty() && (message.back() == '.' || message.back() == ' ')) message.pop_back();
    return message;
}

/// The zone of the golden files, for strftime_now.
class UtcZone {
  public:
    UtcZone() {
        if (const char* zone = std::getenv("TZ")) before_ = zone;
        setenv("TZ", "UTC", 1);
        tzset();
    }
    ~UtcZone() {
        if (before_)
            setenv("TZ", before_->c_str(), 1);
        else
            unsetenv("TZ");
        tzset();
    }

  private:
    std::optional<std::string> before_;
};

struct Counts {
    int texts = 0, refusals = 0, spans = 0;
};

/// Renders, and compares text and spans, or the refusal.
void expect_result(const std::string& which, const std::string& source, const ChatInputs& inputs,
                   const Json& expected, Counts& counts) {
    try {
        const RenderedChat chat = ChatTemplate(source, "test").render(inputs);
        EXPECT_FALSE(expected.contains("error")) << which << " should fail: " << expected.dump();
        EXPECT_EQ(chat.text, expected.value("text", "")) << which;
        EXPECT_EQ(spans_of(chat), expected.value("spans", Json::array())) << which;
        ++counts.texts;
        counts.spans += chat.generated.empty() ? 0 : 1;
    } catch (const Error& error) {
        EXPECT_TRUE(expected.contains("error")) << which << ": " << error.what();
        EXPECT_FALSE(error.remedy().empty()) << which;
        const std::string message = refusal(expected.value("error", ""));
        EXPECT_NE(error.cause().find(message), std::string::npos) << which << ": " << error.what();
        ++counts.refusals;
    }
}

TEST(ChatGolden, TextsSpansAndRefusalsAreThoseOfTransformers) {
    const UtcZone zone;
    const Json golden = read_compressed_json(golden_path("text/chat/rendered.json.gz"));
    const Json& conversations = golden.at("conversations");
    Counts counts;
    for (const auto& [name, results] : golden.at("results").items()) {
        const std::string source = read_text_file(golden_path("text/chat/templates/" + name + ".jinja"));
        ASSERT_EQ(results.size(), conversations.size());
        std::size_t at = 0;
        for (const auto& [conversation, given] : conversations.items())
            expect_result(name + " with " + conversation, source, inputs_of(given, golden), results[at++],
                          counts);
    }
    EXPECT_GE(golden.at("results").size(), 40u);
    EXPECT_GE(conversations.size(), 30u);
    EXPECT_GE(counts.texts, 1200);
    EXPECT_GE(counts.refusals, 100);
    EXPECT_GE(counts.spans, 100);
}

TEST(ChatGolden, SnippetsGiveWhatJinjaGives) {
    const Json golden = read_compressed_json(golden_path("text/chat/rendered.json.gz"));
    const ChatInputs inputs = inputs_of(golden.at("snippet_inputs"), golden);
    const Json& snippets = golden.at("snippets");
    Counts counts;
    for (std::size_t i = 0; i < snippets.size(); ++i) {
        const std::string source = snippets[i];
        expect_result(source, source, inputs, golden.at("snippet_results").at(i), counts);
    }
    EXPECT_GE(counts.texts, 200);
    EXPECT_GE(counts.refusals, 150);
}

}  // namespace
}  // namespace drover
