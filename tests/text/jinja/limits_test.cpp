// Templates that would not end, or would take all memory or stack, end with an error that names the line.
#include <gtest/gtest.h>

#include "support/errors.h"
#include "text/jinja/template.h"

namespace drover::jinja {
namespace {

using test::expect_error;

std::string rendered(std::string_view source, const Limits& limits = {}, const Json& value = nullptr) {
    const std::vector<Variable> variables = {{"value", &value}};
    return Template(source, "test.jinja").render(variables, {}, limits).text;
}

/// Small enough for a quick test.
constexpr Limits small{.steps = 200'000, .bytes = 4 << 20, .output = 1 << 20, .depth = 300};

std::string repeated(std::string_view text, int times) {
    std::string result;
    for (int i = 0; i < times; ++i) result += text;
    return result;
}

TEST(JinjaLimits, LoopsInLoops) {
    const std::string source =
        "start\n{% for a in range(9999) %}{% for b in range(9999) %}\n{% set c = a + b %}\n"
        "{% endfor %}{% endfor %}";
    expect_error([&] { rendered(source, small); }, {"test.jinja, line", "200,000 steps"});
}

TEST(JinjaLimits, TextsThatDouble) {
    const std::string source =
        "{% set ns = namespace(s='abcdefgh') %}\n{% for i in range(99) %}\n"
        "{% set ns.s = ns.s ~ ns.s %}\n{% endfor %}{{ ns.s | length }}";
    expect_error([&] { rendered(source, small); }, {"test.jinja, line 3", "4.00 MiB of values"});
    for (const char* other :
         {"ns.s * 9999999999", "ns.s.replace('', ns.s)", "ns.s.join(ns.s | list)", "ns.s.ljust(99999999999)",
          "('%99999999d' % 1)", "[ns.s, ns.s] | string", "ns.s | indent(9999999999)"})
        expect_error(
            [&] {
                rendered("{% set ns = namespace(s='ab') %}{% for i in range(99) %}{% set ns.s = (" +
                             std::string(other) + ") ~ ns.s ~ ns.s %}{% endfor %}",
                         small);
            },
            {"test.jinja, line 1"});
}

TEST(JinjaLimits, SearchesInLongTexts) {
    const std::string texts = "{% set s = 'a' * 1000000 %}{% set other = 'a' * 100000 ~ 'b' %}";
    for (const char* search :
         {"other in s", "s.find(other)", "s.count(other)", "s.split(other)", "s.rsplit(other)",
          "s.partition(other)", "s.replace(other, '')", "s | replace(other, '')"})
        expect_error([&] { rendered(texts + "{{ " + search + " }}"); }, {"50,000,000 steps"});
    EXPECT_EQ(rendered(texts + "{{ 'ab' in s }} {{ other in other }} {{ s.find('ab') }}"), "False True -1");
    EXPECT_EQ(rendered("{{ ('1_' * 500000 ~ 1) | int(7) }} {{ '_1_2_' | int(7) }} {{ '1_2' | int }}"),
              "7 7 12");
    const std::string loops =
        "{% set s = 'é' * 100000 %}{% set d = {s: 1} %}{% for a in range(99) %}{% for b in range(99) %}";
    for (const char* use : {"s[99999:]", "d[s]", "s in d", "s.startswith((s, s))", "s | int", "s | float",
                            "s is lower", "s is upper", "s is sameas s"})
        expect_error(
            [&] { rendered(loops + "{% if " + use + " %}{% endif %}{% endfor %}{% endfor %}", small); },
            {"200,000 steps"});
}

TEST(JinjaLimits, ListsThatDouble) {
    const std::string source =
        "{% set ns = namespace(l=[1]) %}{% for i in range(99) %}{% set ns.l = ns.l + ns.l %}{% endfor %}";
    expect_error([&] { rendered(source, small); }, {"test.jinja, line 1"});
    expect_error([&] { rendered("{{ [1] * 999999999999 }}", small); }, {"of values"});
    expect_error([&] { rendered("{{ range(100001) }}"); }, {"Range too big"});
    EXPECT_EQ(rendered("{{ range(100000) | length }}"), "100000");
}

TEST(JinjaLimits, LongOutput) {
    const std::string source = "{% for i in range(9999) %}\n" + repeated("0123456789", 20) + "\n{% endfor %}";
    expect_error([&] { rendered(source, small); }, {"test.jinja, line 2", "1.00 MiB"});
    EXPECT_EQ(rendered(source).size(), 9999u * 201);
}

TEST(JinjaLimits, EndlessRecursion) {
    const std::string source = "{% macro f(n) %}\n{{ f(n + 1) }}\n{% endmacro %}{{ f(0) }}";
    expect_error([&] { rendered(source); }, {"test.jinja, line 2", "1000 levels"});
    const std::string down =
        "{% macro f(n) %}{% if n > 0 %}{{ f(n - 1) }}{% endif %}x{% endmacro %}{{ f(100) }}";
    EXPECT_EQ(rendered(down), std::string(101, 'x'));
}

TEST(JinjaLimits, ValuesInsideOfThemselves) {
    const std::string chain =
        "{% set ns = namespace(l=[]) %}{% for i in range(5000) %}{% set ns.l = [ns.l] %}{% endfor %}";
    for (const char* use :
         {"{{ ns.l }}", "{{ ns.l | tojson }}", "{{ ns.l == [ns.l] }}", "{{ ns.l < [ns.l] }}"})
        expect_error([&] { rendered(chain + use); }, {"levels of nesting"});
    EXPECT_EQ(rendered(chain + "{{ ns.l | length }}"), "1");
    expect_error([&] { rendered("{% set ns = namespace() %}{% set ns.me = [ns] %}{{ ns }}"); }, {"levels"});
}

TEST(JinjaLimits, DeepInput) {
    Json deep = 1;
    for (int i = 0; i < 2000; ++i) deep = Json::array({std::move(deep)});
    expect_error([&] { rendered("{{ value }}", {}, deep); }, {"levels of nesting"});
}

TEST(JinjaLimits, DeepSyntax) {
    const auto around = [](const char* left, const char* middle, const char* right, int times) {
        return repeated(left, times) + middle + repeated(right, times);
    };
    for (const std::string& source :
         {"{{ " + around("(", "1", ")", 5000) + " }}", "{{ " + around("[", "1", "]", 5000) + " }}",
          "{{ " + around("not ", "1", "", 5000) + " }}", "{{ " + around("-", "1", "", 5000) + " }}",
          "{{ 1" + repeated(" + 1", 5000) + " }}", "{{ value" + repeated(".a", 5000) + " }}",
          "{{ value" + repeated(" | list", 5000) + " }}", "{{ 1" + repeated(" if 1 else 1", 5000) + " }}",
          around("{% if 1 %}", "x", "{% endif %}", 5000),
          around("{% for i in [1] %}", "x", "{% endfor %}", 5000), "{{ value" + repeated("(1)", 5000) + " }}",
          "{% set " + around("(", "a", ",)", 5000) + " = 1 %}"})
        expect_error([&] { rendered(source); }, {"test.jinja, line 1", "200 levels of nesting"});
    EXPECT_EQ(rendered("{{ " + around("(", "1", ")", 50) + " }}"), "1");
    EXPECT_EQ(rendered("{{ '' " + repeated(" ~ 'x'", 5000) + " }}"), std::string(5000, 'x'));
}

TEST(JinjaErrors, NameTheLine) {
    const auto expect_line = [](std::string_view source, int line, std::string_view what) {
        expect_error([&] { rendered(source); }, {"test.jinja, line " + std::to_string(line), what});
    };
    expect_line("\n\n{{ raise_exception('No.') }}", 3, "refuses the conversation: No.");
    expect_line("\n{{ missing.deeper }}", 2, "'missing' is undefined");
    expect_line("{% if 1 %}\n\n{{ value() }}{% endif %}", 3, "'NoneType' object is not callable");
    expect_line("a\n{% set x = 1\n   + 'a' %}", 2, "unsupported operand");
    expect_line("{{ 1\n + }}", 2, "unexpected }}");
    expect_line("\n{% for x %}{% endfor %}", 2, "expected 'in'");
    expect_line("{# open", 1, "comment has no end");
    expect_line("\n{% raw %}\n", 2, "raw block has no end");
    expect_line("{{ 'open }}", 1, "string has no end");
    expect_line("{{ (1] }}", 1, "unexpected ']'");
    expect_line("{% include 'x' %}", 1, "'include' is not supported");
    expect_line("{% nonsense %}", 1, "'nonsense'");
    expect_line("{% endif %}", 1, "'endif'");
    expect_line("{% break %}", 1, "'break' outside of a loop");
    expect_line("{% for x in [] %}{% generation %}{% continue %}{% endgeneration %}{% endfor %}", 1,
                "'continue'");
    expect_line("{% for x in [] recursive %}{% endfor %}", 1, "recursive");
    expect_line("{% set 1 = 2 %}", 1, "only names");
    expect_line("{% set loop = 2 %}", 1, "\"loop\"");
    expect_line("{% set value.x = 2 %}", 1, "non-namespace");
    expect_line("{{ 9223372036854775807 + 1 }}", 1, "64 bits");
    expect_line("{{ 92233720368547758070 }}", 1, "64 bits");
    expect_line("{{ 2 ** 64 }}", 1, "64 bits");
    expect_line("{{ 'x'.encode() }}", 1, "str.encode is not supported");
    expect_line("{{ value | tojson(nonsense=1) }}", 1, "tojson does not take these arguments");
    expect_line("\xff", 1, "UTF-8");
}

TEST(JinjaTemplate, SaysWhetherItMarksWhatIsGenerated) {
    EXPECT_TRUE(Template("{% generation %}{% endgeneration %}", "x").has_generation());
    EXPECT_FALSE(Template("{{ 'generation' }}", "x").has_generation());
}

}  // namespace
}  // namespace drover::jinja
