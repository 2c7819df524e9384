#include "text/streaming_decoder.h"

#include <random>

#include "text/golden_texts.h"
#include "text/utf8.h"

namespace drover {
namespace {

using test::encoded;
using test::shown;

class Streaming : public testing::TestWithParam<const char*> {
  protected:
    std::shared_ptr<const Tokenizer> tokenizer_ =
        load_tokenizer(std::filesystem::path(DROVER_SOURCE_DIR) / GetParam());
};

TEST_P(Streaming, TogetherItIsTheWholeText) {
    StreamingDecoder decoder(tokenizer_, true);
    for (const std::string& text : test::hard_strings()) {
        const auto ids = encoded(*tokenizer_, text);
        std::string streamed;
        for (const TokenId id : ids) {
            const std::string part = decoder.push(id);
            EXPECT_EQ(valid_utf8_prefix(part), part.size()) << shown(text);
            streamed += part;
        }
        streamed += decoder.finish();
        EXPECT_EQ(streamed, tokenizer_->decode(ids, true)) << shown(text);
    }
}

TEST_P(Streaming, RandomIdsGiveUtf8) {
    std::mt19937 draw(3);
    StreamingDecoder decoder(tokenizer_, false);
    for (int i = 0; i < 2000; ++i) {
        const std::string part = decoder.push(static_cast<TokenId>(draw() % 260));  // mostly single bytes
        EXPECT_EQ(valid_utf8_prefix(part), part.size());
    }
    const std::string rest = decoder.finish();
    EXPECT_EQ(valid_utf8_prefix(rest), rest.size());
}

INSTANTIATE_TEST_SUITE_P(Tokenizers, Streaming,
                         testing::Values("examples/tokenizers/shakespeare-4k",
                                         "examples/tokenizers/mistral-v1", "tests/golden/text/metaspace-1k",
                                         "tests/golden/text/gpt2-1k"));

TEST(Streaming, NoWaitingWhereNothingIsMissing) {
    const auto tokenizer = load_tokenizer(test::example_tokenizer("mistral-v1"));
    StreamingDecoder decoder(tokenizer, true);
    const auto ids = encoded(*tokenizer, "Hello there, world");
    EXPECT_EQ(decoder.push(ids[0]), "");  // BOS
    EXPECT_EQ(decoder.push(ids[1]), "Hello");
    EXPECT_EQ(decoder.push(ids[2]), " there");
    EXPECT_EQ(decoder.push(ids[3]), ",");
    EXPECT_EQ(decoder.push(ids[4]), " world");
}

TEST(Streaming, BytesWaitForTheirCharacter) {
    const auto tokenizer = load_tokenizer(test::example_tokenizer("mistral-v1"));
    StreamingDecoder decoder(tokenizer, true);
    const std::string emoji = "\U0001fae0";  // four byte tokens
    const auto ids = encoded(*tokenizer, "x" + emoji + emoji, SpecialTokens::omit);
    ASSERT_EQ(ids.size(), 9u);
    std::vector<std::string> parts;
    for (const TokenId id : ids) parts.push_back(decoder.push(id));
    EXPECT_EQ(parts, (std::vector<std::string>{"x", "", "", "", emoji, "", "", "", emoji}));
    decoder.push(ids[1]);
    decoder.push(ids[2]);
    EXPECT_NE(decoder.finish().find("\ufffd"), std::string::npos);  // truncated
    EXPECT_EQ(decoder.push(ids[0]), "x");                           // a new text starts
}

}  // namespace
}  // namespace drover
