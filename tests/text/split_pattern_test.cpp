#include "text/split_pattern.h"

#include <random>

#include "io/safetensors.h"
#include "text/char_class.h"
#include "text/golden_texts.h"
#include "text/utf8.h"

namespace drover {
namespace {

using test::shown;

std::vector<Span> matches_of(const SplitPattern& pattern, std::string_view text) {
    std::vector<Span> matches;
    pattern.find_all(text, matches);
    return matches;
}

class KnownPattern : public testing::TestWithParam<std::string_view> {
  protected:
    void expect_same(const std::string& text) const {
        const auto expected = matches_of(*library_, text);
        const auto found = matches_of(*own_, text);
        ASSERT_EQ(found, expected) << shown(text);
        std::size_t end = 0;
        for (const Span& match : found) {
            ASSERT_EQ(match.begin, end) << shown(text);
            end = match.end;
        }
        ASSERT_EQ(end, text.size());
    }
    std::unique_ptr<SplitPattern> own_ = regex_pattern(GetParam(), "test");
    std::unique_ptr<SplitPattern> library_ = pcre_split_pattern(GetParam(), "test");
};

TEST_P(KnownPattern, HardStrings) {
    for (const std::string& text : test::hard_strings()) {
        if (text.find("\u1c89") != text.npos || text.find("\U00010d40") != text.npos ||
            text.find("\U00013460") != text.npos || text.find("\U0002ebf0") != text.npos)
            continue;  // newer than the library's Unicode
        expect_same(text);
    }
}

TEST_P(KnownPattern, LinesOfCorpus) {
    for (const std::string& line :
         test::lines_of(DROVER_SOURCE_DIR "/examples/data/tinyshakespeare/text.txt"))
        expect_same(line);
}

// All short texts over an alphabet with a character of every kind that the patterns distinguish.
TEST_P(KnownPattern, EveryShortText) {
    const std::vector<std::string> alphabet{"a",      "S",      "\u017f", "\u00e9",    "'",  "l",
                                            "1",      "\u00bd", " ",      "\t",        "\n", "\r",
                                            "\u00a0", "!",      "\u0301", "\U0001f600"};
    std::string text;
    for (const std::string& first : alphabet)
        for (const std::string& second : alphabet)
            for (const std::string& third : alphabet)
                for (const std::string& fourth : alphabet) {
                    text = first;
                    text.append(second).append(third).append(fourth);
                    expect_same(text);
                }
}

TEST_P(KnownPattern, RandomTexts) {
    const std::vector<std::string> alphabet{"a", "'s", "'RE",    "'ll",    "12",     "\u0663",
                                            " ", "  ", "\n",     "\r\n",   "\t",     "x",
                                            ".", "!!", "\u3000", "\u2028", "\u4e2d", "\u0915\u094d"};
    std::mt19937 draw(5);
    for (int i = 0; i < 3000; ++i) {
        std::string text;
        for (unsigned j = 0; j < 3 + draw() % 20; ++j) text += alphabet[draw() % alphabet.size()];
        expect_same(text);
    }
}

INSTANTIATE_TEST_SUITE_P(Patterns, KnownPattern, testing::Values(llama3_pattern, gpt2_pattern));

TEST(Regex, SaysWhatOnigurumaWouldSay) {
    EXPECT_EQ(pcre_pattern(R"(\s+[^\s\p{L}]\\s\S)"),
              R"([\p{White_Space}]+[^\p{White_Space}\p{L}]\\s\P{White_Space})");
    EXPECT_EQ(pcre_pattern(R"(\w[\w-]\W)"),
              R"([\p{L}\p{M}\p{Nd}\p{Pc}][\p{L}\p{M}\p{Nd}\p{Pc}-][^\p{L}\p{M}\p{Nd}\p{Pc}])");
}

TEST(CharClass, OfEveryCharacterAsTheReferenceHasIt) {
    const SafetensorsFile file(test::golden_path("text/bundled.safetensors"));
    for (const auto& [name, bit] :
         {std::pair{"letter", char_class::letter}, std::pair{"number", char_class::number},
          std::pair{"space", char_class::space}}) {
        std::vector<char32_t> members;
        for (char32_t c = 0; c < 0x110000; ++c)
            if (char_classes()[c] & bit) members.push_back(c);
        const auto* expected = file.tensor(std::string("classes.") + name).data<std::int32_t>();
        EXPECT_EQ(members.size(), static_cast<std::size_t>(expected[1])) << name;
        EXPECT_EQ(test::hash_values(members), static_cast<std::uint32_t>(expected[0])) << name;
    }
}

}  // namespace
}  // namespace drover
