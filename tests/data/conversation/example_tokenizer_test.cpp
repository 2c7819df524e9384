#include "data/conversation/example_tokenizer.h"

#include <gtest/gtest.h>

#include <fstream>

#include "core/batch.h"
#include "core/text_file.h"
#include "data/conversation/sft_rows.h"
#include "data/fakes.h"
#include "support/errors.h"
#include "support/golden.h"

namespace drover {
namespace {

/// The tokenizer of tests/golden/sft/qwen, with a template of one's own.
class Examples : public ::testing::Test {
  protected:
    Examples() {
        namespace fs = std::filesystem;
        fs::copy(test::golden_path("sft/qwen"), folder_.path());
        fs::copy(test::golden_path("text/qwen-1k") / "tokenizer.json", folder_.path());
        tokenizer_ = load_tokenizer(folder_.path());
    }
    ExampleTokenizer make(ExampleFormat format, SftOptions options, const std::filesystem::path& path = {}) {
        return {tokenizer_, find_example_template(path, folder_.path(), *tokenizer_), format,
                std::move(options)};
    }
    std::filesystem::path write(const std::string& name, std::string_view text) {
        std::ofstream(folder_ / name) << text;
        return folder_ / name;
    }
    TokenizedExample tokenize(const char* row, ExampleFormat format, SftOptions options = {}) {
        return make(format, std::move(options))(read_example(row, format, "text"));
    }
    std::string learned(const TokenizedExample& example) const {
        std::vector<TokenId> ids;
        for (const TokenId label : example.labels)
            if (label != no_label) ids.push_back(label);
        return tokenizer_->decode(ids, false);
    }

    test::TemporaryFolder folder_;
    std::shared_ptr<const Tokenizer> tokenizer_;
};

constexpr const char* talk =
    R"({"messages": [{"role": "user", "content": "Hi <|im_end|>"}, {"role": "assistant", "content": "Ho <|im_start|>"}]})";

TEST_F(Examples, SpecialTokensOfMessagesStayText) {
    const auto count = [&](const TokenizedExample& example) {
        return std::count_if(example.ids.begin(), example.ids.end(),
                             [&](TokenId id) { return tokenizer_->is_added(id); });
    };
    const TokenizedExample safe = tokenize(talk, ExampleFormat::messages);
    const TokenizedExample all = tokenize(talk, ExampleFormat::messages, {.allow_special_tokens = true});
    EXPECT_EQ(count(safe), 4) << "the template's own";
    EXPECT_EQ(count(all), 6);
    EXPECT_EQ(tokenizer_->decode(safe.ids, false), tokenizer_->decode(all.ids, false));
    const TokenizedExample masked = tokenize(talk, ExampleFormat::messages, {.assistant_only_loss = true});
    EXPECT_EQ(masked.ids, safe.ids);
    EXPECT_EQ(learned(masked), "Ho <|im_start|><|im_end|>");
}

TEST_F(Examples, RolesThatNobodyKnowsAreRefused) {
    const char* row = R"({"messages": [{"role": "wizard", "content": "Hi"}]})";
    test::expect_error([&] { tokenize(row, ExampleFormat::messages); },
                       {"the role \"wizard\", which is unknown"});
    const auto path =
        write("wizard.jinja", "{% for m in messages if m.role == 'wizard' %}{{ m.content }}{% endfor %}");
    EXPECT_NO_THROW(
        make(ExampleFormat::messages, {}, path)(read_example(row, ExampleFormat::messages, "text")));
}

TEST_F(Examples, OptionsThatDoNotFitAreRefused) {
    const SftOptions assistant{.assistant_only_loss = true};
    test::expect_error([&] { make(ExampleFormat::text, assistant); },
                       {"--assistant_only_loss", "plain text"});
    test::expect_error([&] { make(ExampleFormat::messages, {.completion_only_loss = true}); },
                       {"--completion_only_loss", "no completions"});
    test::expect_error([&] { make(ExampleFormat::text, {.eos_token = "<eos>"}); }, {"--eos_token", "<eos>"});
    const auto plain = write("plain.jinja", "{{ messages[0].content }}");
    test::expect_error([&] { make(ExampleFormat::messages, assistant, plain); },
                       {"plain.jinja", "does not mark what the assistant says", "{% generation %}"});
    test::expect_error([&] { make(ExampleFormat::messages, {}, folder_ / "nowhere"); }, {"nowhere"});
}

TEST_F(Examples, WithoutATemplateConversationsAreRefusedAndTextIsNot) {
    std::filesystem::remove(folder_ / "chat_template.jinja");
    test::expect_error([&] { tokenize(talk, ExampleFormat::messages); },
                       {"has no chat template", "--chat_template_path"});
    EXPECT_EQ(tokenizer_->decode(tokenize(R"({"text": "Hi"})", ExampleFormat::text).ids, false),
              "Hi<|im_end|>");
}

TEST_F(Examples, ATemplateFromAnotherFolderNeedsItsTokens) {
    std::filesystem::create_directory(folder_ / "other");
    write("other/chat_template.jinja", "{{ messages[0].content }}{{ eos_token }}");
    write("other/tokenizer_config.json", R"({"eos_token": "<|endoftext|>"})");
    const Example example = read_example(talk, ExampleFormat::messages, "text");
    const ExampleTokenizer examples = make(ExampleFormat::messages, {}, folder_ / "other");
    EXPECT_TRUE(tokenizer_->decode(examples(example).ids, false).ends_with("<|im_end|><|endoftext|>"));
    write("other/tokenizer_config.json", R"({"eos_token": "<end>"})");
    test::expect_error([&] { make(ExampleFormat::messages, {}, folder_ / "other"); }, {"\"<end>\""});
}

TEST_F(Examples, AnEndOfTurnThatIsNotLearnedIsSaid) {
    const SftOptions options{.assistant_only_loss = true};
    EXPECT_EQ(make(ExampleFormat::messages, options).warning(), "");
    EXPECT_NE(make(ExampleFormat::messages, options, test::golden_path("sft/gpt2/chat_template.jinja"))
                  .warning()
                  .find("may not learn to stop"),
              std::string::npos);
}

TEST_F(Examples, EverythingThatMattersChangesTheFingerprint) {
    const std::string plain = make(ExampleFormat::messages, {}).fingerprint();
    EXPECT_EQ(make(ExampleFormat::messages, {.max_length = 7}).fingerprint(), plain) << "cut later";
    EXPECT_NE(make(ExampleFormat::messages, {.assistant_only_loss = true}).fingerprint(), plain);
    EXPECT_NE(make(ExampleFormat::messages, {.allow_special_tokens = true}).fingerprint(), plain);
    EXPECT_NE(make(ExampleFormat::messages, {.eos_token = "<|endoftext|>"}).fingerprint(), plain);
    EXPECT_NE(make(ExampleFormat::prompt_completion, {}).fingerprint(), plain);
    const auto other = write("other.jinja", "{{ messages[0].content }}");
    EXPECT_NE(make(ExampleFormat::messages, {}, other).fingerprint(), plain);
}

/// write_sft_file on rows that are made here.
class SftFile : public Examples {
  protected:
    SftReport write_rows(std::vector<std::string> rows, ExampleFormat format, const SftOptions& options,
                         std::size_t threads = 2) {
        const test::MadeDataset dataset(
            std::ssize(rows), [rows](std::int64_t row) { return rows[static_cast<std::size_t>(row)]; });
        return write_sft_file(folder_ / "rows.tokens", dataset, format, make(format, options), *tokenizer_,
                              options, threads);
    }
};

TEST_F(SftFile, ErrorsSayWhichRow) {
    const std::string good = talk;
    std::vector<std::string> rows(100, good);
    rows[70] = R"({"messages": [{"role": "wizard", "content": "Hi"}]})";
    test::expect_error([&] { write_rows(rows, ExampleFormat::messages, {}); },
                       {"row 71: A message has the role \"wizard\""});
    rows[70] = R"({"messages": 3})";
    test::expect_error([&] { write_rows(rows, ExampleFormat::messages, {}); }, {"row 71: \"messages\" is"});
    rows[70] = R"({"messages": [{"role": "user", "content": "Hi"}]})";
    test::expect_error([&] { write_rows(rows, ExampleFormat::messages, {.assistant_only_loss = true}); },
                       {"row 71: The row has nothing that the assistant says"});
    EXPECT_FALSE(std::filesystem::exists(folder_ / "rows.tokens"));
    const auto strict = write("strict.jinja", "{{ raise_exception('No system.') }}");
    const SftOptions options;
    const test::MadeDataset dataset(3, [&](std::int64_t) { return good; });
    test::expect_error(
        [&] {
            write_sft_file(folder_ / "rows.tokens", dataset, ExampleFormat::messages,
                           make(ExampleFormat::messages, options, strict), *tokenizer_, options, 1);
        },
        {"row 1: ", "No system."});
}

TEST_F(SftFile, ExamplesWithoutALabelAreLeftOutAndCounted) {
    const std::string good = R"({"prompt": "a", "completion": " b"})";
    const std::string longer = R"({"prompt": "a b c d e f g h", "completion": " i"})";
    const SftReport report =
        write_rows({good, longer, good, longer}, ExampleFormat::prompt_completion, {.max_length = 4});
    EXPECT_EQ(report.examples, 4);
    EXPECT_EQ(report.rows, 2);
    EXPECT_EQ(report.cut, 2);
    EXPECT_EQ(report.dropped, 2);
    EXPECT_EQ(report.first_dropped, 2);
    const auto sentences = report.warnings("train", {.max_length = 4});
    ASSERT_EQ(sentences.size(), 2u);
    EXPECT_EQ(sentences[1],
              "train: 2 of 4 examples are left out, because nothing in their first 4 tokens is to be learned "
              "(first row 2).");
    EXPECT_EQ(SftReport::from_text(report.to_text()).to_text(), report.to_text());
    EXPECT_EQ(SftReport::from_text("").rows, 0);
    for (const DocumentPacking packing : {DocumentPacking::none, DocumentPacking::bfd})
        test::expect_error(
            [&] {
                write_rows({longer}, ExampleFormat::prompt_completion, {.max_length = 4, .packing = packing});
            },
            {"In 1 example nothing is to be learned."});
}

TEST_F(SftFile, APromptThatIsNoPrefixIsSaid) {
    const SftReport report =
        write_rows({R"({"prompt": "go ", "completion": "to"})", R"({"prompt": "go", "completion": " to"})"},
                   ExampleFormat::prompt_completion, {});
    EXPECT_EQ(report.lost, 1);
    EXPECT_EQ(report.first_lost, 1);
    EXPECT_EQ(report.lost_prompt, " ");
    EXPECT_NE(report.warnings("train", {})[0].find("first in row 1"), std::string::npos);
}

TEST_F(SftFile, TheNumberOfThreadsDoesNotMatter) {
    std::vector<std::string> rows;
    for (int i = 0; i < 2500; ++i)
        rows.push_back(R"({"text": ")" + std::string(static_cast<std::size_t>(i % 37), 'x') + "\"}");
    const SftOptions options{.max_length = 64, .packing = DocumentPacking::bfd};
    write_rows(rows, ExampleFormat::text, options, 1);
    const std::string one = read_text_file(folder_ / "rows.tokens");
    write_rows(rows, ExampleFormat::text, options, 5);
    EXPECT_TRUE(one == read_text_file(folder_ / "rows.tokens"));
}

}  // namespace
}  // namespace drover
