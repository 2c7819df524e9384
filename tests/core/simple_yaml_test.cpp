#include "core/simple_yaml.h"

#include <gtest/gtest.h>

#include "core/error.h"

namespace drover {
namespace {

Json texts(std::string_view text) {
    return parse_simple_yaml(text, "card", 1);
}
Json typed(std::string_view text) {
    return read_simple_yaml(text, "card", 1, YamlScalars::typed).value;
}
std::string refusal(std::string_view text) {
    try {
        parse_simple_yaml(text, "card", 11);
    } catch (const Error& error) {
        return error.cause();
    }
    return "accepted";
}

TEST(SimpleYaml, MappingsListsAndQuotes) {
    EXPECT_EQ(texts("a:\n  - b: 1 # one\n    c: 'it''s'\n  -\n    d: \"x\\ty\"\n  - [p, \"q, r\"]\n"
                    "e:\n- f\n- g: http://h\nk:\nl: '# no comment'\n"),
              Json::parse(R"({"a": [{"b": "1", "c": "it's"}, {"d": "x\ty"}, ["p", "q, r"]],
                              "e": ["f", {"g": "http://h"}], "k": null, "l": "# no comment"})"));
}

TEST(SimpleYaml, Brackets) {
    EXPECT_EQ(texts("a: {b: c, \"d\": [e, {f: 'g'}], h: }\ni: []\nj:\n  {k: l}\nm:\n- [n]\n- {o: p}\n"),
              Json::parse(R"({"a": {"b": "c", "d": ["e", {"f": "g"}], "h": null}, "i": [],
                              "j": {"k": "l"}, "m": [["n"], {"o": "p"}]})"));
}

TEST(SimpleYaml, MarksOfTheDocumentAndApostrophes) {
    EXPECT_EQ(texts("# first\n---\na: it's # a comment\n...\n"), Json::parse(R"({"a": "it's"})"));
    EXPECT_EQ(texts("\xEF\xBB\xBF"
                    "a: b\r\n"),
              Json::parse(R"({"a": "b"})"));
    EXPECT_TRUE(texts("# nothing\n").is_null());
}

TEST(SimpleYaml, TypedScalarsAreThoseOfPyYaml) {
    EXPECT_EQ(typed("a: 1\nb: -2.5\nc: 1e-5\nd: no\ne: True\nf: ~\ng: '1'\nh: 1.2.3\ni: [on, null, x]\n"
                    "j: +7\nk: 99999999999999999999\nl: .inf\n"),
              Json::parse(R"({"a": 1, "b": -2.5, "c": 1e-5, "d": false, "e": true, "f": null, "g": "1",
                              "h": "1.2.3", "i": [true, null, "x"], "j": 7, "k": 1e20, "l": ".inf"})"));
}

TEST(SimpleYaml, KnowsTheLinesOfTheOuterKeys) {
    const SimpleYaml yaml = read_simple_yaml("---\na: 1\n\nb:\n  c: 2\n'd': 3\n", "card", 5);
    EXPECT_EQ(yaml.lines, (std::map<std::string, int, std::less<>>{{"a", 6}, {"b", 8}, {"d", 10}}));
}

TEST(SimpleYaml, OtherFormsAreErrorsWithTheirLine) {
    for (const std::string_view text :
         {"a:\n  b: |", "a:\n  b: 'open", "a:\n  b: [open", "a:\n  b", "a: 1\na: 2", "a: x\n   b: y",
          "a: 'x' y", "a: {b: c, b: d}", "a: {b c}", "a: [b] c", "a: [b c: [", "a: [,]", ": b", "a: ]",
          "a: 1\n---\nb: 2", "a:\n\tb: 1", "a: {: b}", "a: [b {c}]"}) {
        const std::string message = refusal(text);
        EXPECT_TRUE(message.starts_with("card:1")) << text << ": " << message;
    }
    EXPECT_EQ(refusal("a:\n  b: &x y"), "card:12: values that begin with & are not understood.");
    EXPECT_EQ(refusal("a: 1\nb: {c: 1\n"), "card:12: a bracket is not closed at the end of the line.");
    EXPECT_NE(refusal("a: " + std::string(200, '[')), "accepted");
}

}  // namespace
}  // namespace drover
