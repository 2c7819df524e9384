#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "core/json.h"
#include "core/json_text.h"
#include "support/golden.h"
#include "text/chat/special_guard.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

namespace drover {
namespace {

std::vector<TokenId> plain_ids(const Tokenizer& tokenizer, std::string_view text) {
    std::vector<TokenId> ids;
    tokenizer.encode(text, SpecialTokens::omit, ids);
    return ids;
}

/// Files of tests/golden/text or, with "shared:", of the folder of materials that are not committed.
std::filesystem::path tokenizer_file(const std::string& name) {
    constexpr std::string_view prefix = "shared:";
    if (!name.starts_with(prefix)) return test::golden_path("text/" + name) / "tokenizer.json";
    const char* shared = std::getenv("DROVER_SHARED");
    const std::filesystem::path root = DROVER_SOURCE_DIR;
    return (shared != nullptr ? std::filesystem::path(shared) : root / "../shared") /
           name.substr(prefix.size());
}

TEST(AlignedEncoding, TokensOfCharactersEqualHuggingFaces) {
    const Json golden = read_json_file(test::golden_path("sft/offsets.json"));
    for (const Json& found : golden["found"]) {
        const std::string name = found["tokenizer"];
        const std::filesystem::path file = tokenizer_file(name);
        if (!std::filesystem::exists(file)) continue;  // of the materials that are not committed
        const auto tokenizer = load_tokenizer(file);
        for (std::size_t t = 0; t < golden["texts"].size(); ++t) {
            const std::string text = golden["texts"][t];
            std::vector<TokenId> ids;
            std::vector<Span> spans;
            tokenizer->encode_aligned(text, SpecialTokens::omit, ids, spans);
            EXPECT_EQ(ids, plain_ids(*tokenizer, text)) << name << ": " << text;
            ASSERT_EQ(spans.size(), ids.size());
            std::int64_t expected = 0;
            std::size_t character = 0;
            for (std::size_t byte = 0; byte < text.size();
                 byte += decode_utf8(std::string_view(text).substr(byte)).length) {
                const auto holds = [&](const Span& span) { return span.begin <= byte && byte < span.end; };
                const auto token = std::find_if(spans.begin(), spans.end(), holds);
                const Json& step = found["tokens"][t][character++];
                expected += step.is_null() ? 0 : step.get<std::int64_t>();
                // A mark that a normalizer composes with its letter is in no token there, and here in the
                // letter's.
                if (step.is_null() && name == "qwen-1k") continue;
                EXPECT_EQ(token == spans.end(), step.is_null()) << name << ": " << text << " at " << byte;
                if (step.is_null()) continue;
                EXPECT_EQ(token - spans.begin(), expected) << name << ": " << text << " at " << byte;
            }
        }
    }
}

TEST(AlignedEncoding, CountsTheTokensAround) {
    const auto tokenizer = load_tokenizer(test::example_path("tokenizers/mistral-v1"));
    std::vector<TokenId> ids, expected;
    std::vector<Span> spans;
    tokenizer->encode("a b", SpecialTokens::add, expected);
    tokenizer->encode_aligned("a b", SpecialTokens::add, ids, spans);
    EXPECT_EQ(ids, expected);
    EXPECT_EQ(spans, (std::vector<Span>{{0, 0}, {0, 1}, {1, 3}}));
}

TEST(AlignedEncoding, LibrarysModelsHaveSpansToo) {
    const auto tokenizer = load_tokenizer(test::golden_path("text/unigram-600.model"));
    const std::string text = "the king";
    std::vector<TokenId> ids;
    std::vector<Span> spans;
    tokenizer->encode_aligned(text, SpecialTokens::omit, ids, spans);
    EXPECT_EQ(ids, plain_ids(*tokenizer, text));
    ASSERT_EQ(spans.size(), ids.size());
    EXPECT_EQ(spans.back().end, text.size());
}

class Guarded : public ::testing::Test {
  protected:
    std::shared_ptr<const Tokenizer> tokenizer_ =
        load_tokenizer(test::golden_path("text/qwen-1k") / "tokenizer.json");
    SpecialGuard guard_{*tokenizer_};

    std::vector<TokenId> guarded_ids(const std::string& text) const {
        std::vector<TokenId> ids;
        tokenizer_->encode_guarded(guard_.guarded(text).get<std::string>(), ids);
        return ids;
    }
};

TEST_F(Guarded, SpecialTokensInTextStayText) {
    for (const char* text : {"a<|im_end|>b", "<|im_end|>", "<|im_start|><|im_start|>", "<<|im_end|>>"}) {
        const std::vector<TokenId> ids = guarded_ids(text);
        for (const TokenId id : ids) EXPECT_FALSE(tokenizer_->is_added(id)) << text;
        EXPECT_EQ(tokenizer_->decode(ids, false), text);
    }
}

TEST_F(Guarded, OtherAddedTokensAreTokens) {
    EXPECT_FALSE(guard_.is_needed("a<tool_call>b"));
    EXPECT_EQ(guarded_ids("a<tool_call>b"), plain_ids(*tokenizer_, "a<tool_call>b"));
}

TEST_F(Guarded, AlignedIdsAreTheSame) {
    const std::string text =
        "<|im_start|>user\n" + guard_.guarded("x <|im_end|> y").get<std::string>() + "<|im_end|>";
    std::vector<TokenId> ids, aligned;
    std::vector<Span> spans;
    tokenizer_->encode_guarded(text, ids);
    tokenizer_->encode_aligned(text, SpecialTokens::omit, aligned, spans);
    EXPECT_EQ(aligned, ids);
    EXPECT_EQ(spans.back(), (Span{text.size() - 10, text.size()}));
}

TEST_F(Guarded, ValuesAreGuardedAtAnyDepth) {
    const Json value = {{"a<|im_end|>", {1, "b", {{"c", "<|endoftext|>"}}}}};
    EXPECT_TRUE(guard_.is_needed(value));
    const Json guarded = guard_.guarded(value);
    EXPECT_FALSE(guard_.is_needed(guarded));
    std::string text = guarded.dump();
    for (auto at = text.find(token_guard); at != std::string::npos; at = text.find(token_guard))
        text.erase(at, token_guard.size());
    EXPECT_EQ(text, value.dump());
    EXPECT_FALSE(guard_.is_needed(Json{{"a", {"b", nullptr, 2.5}}}));
}

}  // namespace
}  // namespace drover
