#include "text/jinja/expression_parser.h"

#include <fmt/format.h>

#include <algorithm>

#include "text/jinja/characters.h"

namespace drover::jinja {
namespace {

/// Deeper templates would need too much stack; Python gives up at a similar depth.
constexpr int deepest = 200;

std::string described(const Token& token) {
    switch (token.kind) {
        case TokenKind::data:
            return "text";
        case TokenKind::variable_begin:
            return "{{";
        case TokenKind::variable_end:
            return "}}";
        case TokenKind::block_begin:
            return "{%";
        case TokenKind::block_end:
            return "%}";
        case TokenKind::string:
            return "a string";
        case TokenKind::end:
            return "the end of the template";
        default:
            return fmt::format("'{}'", token.text);
    }
}

template <class... Parts>
std::vector<ExpressionPointer> parts(Parts... given) {
    std::vector<ExpressionPointer> result;
    (result.push_back(std::move(given)), ...);
    return result;
}

}  // namespace

ExpressionParser::Level::Level(ExpressionParser& parser) : parser_(parser) {
    if (parser.depth_ == deepest) parser.fail(fmt::format("more than {} levels of nesting", deepest));
    ++parser.depth_;
}

void ExpressionParser::fail(std::string_view what, int line) const {
    syntax_error(name_, line > 0 ? line : current().line, what);
}

void ExpressionParser::fail_unexpected() const {
    fail(fmt::format("unexpected {}", described(current())));
}

bool ExpressionParser::skip_name(std::string_view name) {
    if (!current().is_name(name)) return false;
    next();
    return true;
}

bool ExpressionParser::skip_sign(std::string_view sign) {
    if (!current().is_sign(sign)) return false;
    next();
    return true;
}

Token ExpressionParser::expect(TokenKind kind) {
    if (current().kind != kind) fail_unexpected();
    return next();
}

void ExpressionParser::expect_name(std::string_view name) {
    if (!skip_name(name)) fail(fmt::format("expected '{}', got {}", name, described(current())));
}

void ExpressionParser::expect_sign(std::string_view sign) {
    if (!skip_sign(sign)) fail(fmt::format("expected '{}', got {}", sign, described(current())));
}

Value ExpressionParser::constant_text(std::string text) {
    auto object = std::make_unique<TextObject>();
    object->characters = character_count(text);
    object->bytes = std::move(text);
    object->markup = false;
    const Value value(Kind::text, object.get());
    tree_.constants.push_back(std::move(object));
    return value;
}

ExpressionPointer ExpressionParser::checked(ExpressionPointer made) {
    int highest = 0;
    const auto look = [&](const ExpressionPointer& part) {
        if (part) highest = std::max(highest, part->height);
    };
    for (const ExpressionPointer& part : made->parts) look(part);
    for (const auto& [name, value] : made->named) look(value);
    look(made->star);
    look(made->double_star);
    made->height = highest + 1;
    if (made->height > deepest) fail(fmt::format("more than {} levels of nesting", deepest), made->line);
    return made;
}

ExpressionPointer ExpressionParser::make(ExpressionKind kind, int line,
                                         std::vector<ExpressionPointer> given) {
    auto made = std::make_unique<Expression>();
    made->kind = kind;
    made->line = line;
    made->parts = std::move(given);
    return checked(std::move(made));
}

bool ExpressionParser::at_tuple_end(std::initializer_list<std::string_view> ends) const {
    const Token& token = current();
    if (token.kind == TokenKind::variable_end || token.kind == TokenKind::block_end || token.is_sign(")"))
        return true;
    return std::any_of(ends.begin(), ends.end(), [&](std::string_view end) { return token.is_name(end); });
}

ExpressionPointer ExpressionParser::tuple(bool conditionals, std::initializer_list<std::string_view> ends) {
    const int line = current().line;
    ExpressionPointer first = expression(conditionals);
    if (!current().is_sign(",")) return first;
    std::vector<ExpressionPointer> items;
    items.push_back(std::move(first));
    while (skip_sign(",") && !at_tuple_end(ends)) items.push_back(expression(conditionals));
    return make(ExpressionKind::tuple, line, std::move(items));
}

void ExpressionParser::expect_target(const Expression& target) const {
    if (target.kind == ExpressionKind::tuple) {
        for (const ExpressionPointer& part : target.parts) expect_target(*part);
        return;
    }
    if (target.kind == ExpressionKind::name && target.name == "loop")
        fail("\"loop\" cannot be set", target.line);
    if (target.kind != ExpressionKind::name && target.kind != ExpressionKind::namespace_target)
        fail("only names can be set", target.line);
}

ExpressionPointer ExpressionParser::target(bool attributes, std::initializer_list<std::string_view> ends) {
    const int line = current().line;
    ExpressionPointer made = primary(attributes);
    if (current().is_sign(",")) {
        std::vector<ExpressionPointer> items;
        items.push_back(std::move(made));
        while (skip_sign(",") && !at_tuple_end(ends)) items.push_back(primary(attributes));
        made = make(ExpressionKind::tuple, line, std::move(items));
    }
    expect_target(*made);
    return made;
}

ExpressionPointer ExpressionParser::expression(bool conditionals) {
    const Level level(*this);
    return conditionals ? conditional() : logical_or();
}

ExpressionPointer ExpressionParser::conditional() {
    const Level level(*this);
    const int line = current().line;
    ExpressionPointer value = logical_or();
    while (skip_name("if")) {
        ExpressionPointer condition = logical_or();
        ExpressionPointer otherwise;
        if (skip_name("else")) otherwise = conditional();
        value = make(ExpressionKind::conditional, line,
                     parts(std::move(condition), std::move(value), std::move(otherwise)));
    }
    return value;
}

ExpressionPointer ExpressionParser::logical_or() {
    const int line = current().line;
    ExpressionPointer left = logical_and();
    while (skip_name("or")) {
        ExpressionPointer right = logical_and();
        left = make(ExpressionKind::logical_or, line, parts(std::move(left), std::move(right)));
    }
    return left;
}

ExpressionPointer ExpressionParser::logical_and() {
    const int line = current().line;
    ExpressionPointer left = logical_not();
    while (skip_name("and")) {
        ExpressionPointer right = logical_not();
        left = make(ExpressionKind::logical_and, line, parts(std::move(left), std::move(right)));
    }
    return left;
}

ExpressionPointer ExpressionParser::logical_not() {
    const int line = current().line;
    if (!current().is_name("not")) return comparison();
    const Level level(*this);
    next();
    return make(ExpressionKind::logical_not, line, parts(logical_not()));
}

ExpressionPointer ExpressionParser::comparison() {
    const int line = current().line;
    std::vector<ExpressionPointer> operands;
    std::vector<Comparison> comparisons;
    operands.push_back(sum());
    constexpr std::pair<std::string_view, Comparison> signs[] = {
        {"==", Comparison::equal},  {"!=", Comparison::different},     {"<", Comparison::less},
        {">", Comparison::greater}, {"<=", Comparison::less_or_equal}, {">=", Comparison::greater_or_equal}};
    const auto read_operator = [&] {
        for (const auto& [sign, comparison] : signs)
            if (skip_sign(sign)) {
                comparisons.push_back(comparison);
                return true;
            }
        if (skip_name("in")) {
            comparisons.push_back(Comparison::in);
            return true;
        }
        if (!current().is_name("not") || !ahead().is_name("in")) return false;
        next();
        next();
        comparisons.push_back(Comparison::not_in);
        return true;
    };
    while (read_operator()) operands.push_back(sum());
    if (comparisons.empty()) return std::move(operands.front());
    ExpressionPointer made = make(ExpressionKind::comparison, line, std::move(operands));
    made->comparisons = std::move(comparisons);
    return made;
}

ExpressionPointer ExpressionParser::sum() {
    const int line = current().line;
    ExpressionPointer left = concatenation();
    while (current().is_sign("+") || current().is_sign("-")) {
        const bool plus = next().text == "+";
        ExpressionPointer right = concatenation();
        left = make(ExpressionKind::arithmetic, line, parts(std::move(left), std::move(right)));
        left->operation = plus ? Arithmetic::add : Arithmetic::subtract;
    }
    return left;
}

ExpressionPointer ExpressionParser::concatenation() {
    const int line = current().line;
    ExpressionPointer first = product();
    if (!current().is_sign("~")) return first;
    std::vector<ExpressionPointer> operands;
    operands.push_back(std::move(first));
    while (skip_sign("~")) operands.push_back(product());
    return make(ExpressionKind::concatenation, line, std::move(operands));
}

ExpressionPointer ExpressionParser::product() {
    const int line = current().line;
    ExpressionPointer left = power();
    for (;;) {
        Arithmetic operation;
        if (current().is_sign("*"))
            operation = Arithmetic::multiply;
        else if (current().is_sign("/"))
            operation = Arithmetic::divide;
        else if (current().is_sign("//"))
            operation = Arithmetic::floor_divide;
        else if (current().is_sign("%"))
            operation = Arithmetic::modulo;
        else
            return left;
        next();
        ExpressionPointer right = power();
        left = make(ExpressionKind::arithmetic, line, parts(std::move(left), std::move(right)));
        left->operation = operation;
    }
}

ExpressionPointer ExpressionParser::power() {
    const int line = current().line;
    ExpressionPointer left = unary();
    while (skip_sign("**")) {
        ExpressionPointer right = unary();
        left = make(ExpressionKind::arithmetic, line, parts(std::move(left), std::move(right)));
        left->operation = Arithmetic::power;
    }
    return left;
}

ExpressionPointer ExpressionParser::unary(bool with_filters) {
    const Level level(*this);
    const int line = current().line;
    ExpressionPointer value;
    if (skip_sign("-"))
        value = make(ExpressionKind::negative, line, parts(unary(false)));
    else if (skip_sign("+"))
        value = make(ExpressionKind::positive, line, parts(unary(false)));
    else
        value = primary();
    value = postfix(std::move(value));
    return with_filters ? filters_and_tests(std::move(value)) : std::move(value);
}

ExpressionPointer ExpressionParser::primary(bool attributes) {
    const Token token = current();
    const auto constant = [&](Value value) {
        ExpressionPointer made = make(ExpressionKind::constant, token.line);
        made->constant = value;
        return made;
    };
    switch (token.kind) {
        case TokenKind::name: {
            next();
            if (token.text == "true" || token.text == "True") return constant(Value::boolean(true));
            if (token.text == "false" || token.text == "False") return constant(Value::boolean(false));
            if (token.text == "none" || token.text == "None") return constant(Value::none());
            const bool dotted = attributes && skip_sign(".");
            ExpressionPointer made =
                make(dotted ? ExpressionKind::namespace_target : ExpressionKind::name, token.line);
            made->name = token.text;
            if (dotted) made->attribute = expect(TokenKind::name).text;
            return made;
        }
        case TokenKind::string: {
            std::string text;
            while (current().kind == TokenKind::string) text += next().text;
            return constant(constant_text(std::move(text)));
        }
        case TokenKind::integer:
            next();
            return constant(Value::integer(token.whole));
        case TokenKind::real:
            next();
            return constant(Value::real(token.real));
        default:
            break;
    }
    if (token.is_sign("[")) return list();
    if (token.is_sign("{")) return dict();
    if (!skip_sign("(")) fail_unexpected();
    if (skip_sign(")")) return make(ExpressionKind::tuple, token.line);
    ExpressionPointer inner = tuple();
    expect_sign(")");
    return inner;
}

ExpressionPointer ExpressionParser::list() {
    const int line = next().line;
    std::vector<ExpressionPointer> items;
    while (!current().is_sign("]")) {
        if (!items.empty()) expect_sign(",");
        if (current().is_sign("]")) break;
        items.push_back(expression());
    }
    expect_sign("]");
    return make(ExpressionKind::list, line, std::move(items));
}

ExpressionPointer ExpressionParser::dict() {
    const int line = next().line;
    std::vector<ExpressionPointer> entries;
    while (!current().is_sign("}")) {
        if (!entries.empty()) expect_sign(",");
        if (current().is_sign("}")) break;
        entries.push_back(expression());
        expect_sign(":");
        entries.push_back(expression());
    }
    expect_sign("}");
    return make(ExpressionKind::dict, line, std::move(entries));
}

ExpressionPointer ExpressionParser::postfix(ExpressionPointer value) {
    for (;;) {
        if (current().is_sign(".") || current().is_sign("["))
            value = subscript(std::move(value));
        else if (current().is_sign("("))
            value = call(std::move(value));
        else
            return value;
    }
}

ExpressionPointer ExpressionParser::filters_and_tests(ExpressionPointer value) {
    for (;;) {
        if (current().is_sign("|"))
            value = filters(std::move(value), false);
        else if (current().is_name("is"))
            value = test(std::move(value));
        else if (current().is_sign("("))
            value = call(std::move(value));
        else
            return value;
    }
}

ExpressionPointer ExpressionParser::subscript(ExpressionPointer value) {
    const int line = current().line;
    if (skip_sign(".")) {
        if (current().kind == TokenKind::integer) {
            ExpressionPointer index = make(ExpressionKind::constant, line);
            index->constant = Value::integer(next().whole);
            return make(ExpressionKind::item, line, parts(std::move(value), std::move(index)));
        }
        const std::string name = expect(TokenKind::name).text;
        ExpressionPointer made = make(ExpressionKind::attribute, line, parts(std::move(value)));
        made->name = name;
        return made;
    }
    expect_sign("[");
    ExpressionPointer made = subscripted(std::move(value));
    expect_sign("]");
    return made;
}

ExpressionPointer ExpressionParser::subscripted(ExpressionPointer value) {
    const int line = current().line;
    ExpressionPointer start, stop, step;
    if (!current().is_sign(":")) start = expression();
    if (!skip_sign(":")) {
        if (current().is_sign(",")) {  // value[a, b] has a tuple for its key
            std::vector<ExpressionPointer> keys;
            keys.push_back(std::move(start));
            while (skip_sign(",")) keys.push_back(expression());
            start = make(ExpressionKind::tuple, line, std::move(keys));
        }
        return make(ExpressionKind::item, line, parts(std::move(value), std::move(start)));
    }
    if (!current().is_sign(":") && !current().is_sign("]")) stop = expression();
    if (skip_sign(":") && !current().is_sign("]")) step = expression();
    return make(ExpressionKind::slice, line,
                parts(std::move(value), std::move(start), std::move(stop), std::move(step)));
}

void ExpressionParser::arguments(Expression& call) {
    const int line = current().line;
    expect_sign("(");
    const auto ensure = [&](bool holds) {
        if (!holds) fail("invalid syntax for function call expression", line);
    };
    for (bool first = true; !current().is_sign(")"); first = false) {
        if (!first) {
            expect_sign(",");
            if (current().is_sign(")")) break;
        }
        if (skip_sign("*")) {
            ensure(!call.star && !call.double_star);
            call.star = expression();
        } else if (skip_sign("**")) {
            ensure(!call.double_star);
            call.double_star = expression();
        } else if (current().kind == TokenKind::name && ahead().is_sign("=")) {
            ensure(!call.double_star);
            const std::string name = next().text;
            next();
            ensure(std::none_of(call.named.begin(), call.named.end(),
                                [&](const auto& given) { return given.first == name; }));
            call.named.emplace_back(name, expression());
        } else {
            ensure(!call.star && !call.double_star && call.named.empty());
            call.parts.push_back(expression());
        }
    }
    expect_sign(")");
}

ExpressionPointer ExpressionParser::call(ExpressionPointer function) {
    ExpressionPointer made = make(ExpressionKind::call, current().line, parts(std::move(function)));
    arguments(*made);
    return checked(std::move(made));
}

std::string ExpressionParser::dotted_name() {
    std::string name = expect(TokenKind::name).text;
    while (skip_sign(".")) name += "." + expect(TokenKind::name).text;
    return name;
}

ExpressionPointer ExpressionParser::filters(ExpressionPointer value, bool inline_first) {
    while (inline_first || current().is_sign("|")) {
        if (!inline_first) next();
        inline_first = false;
        const int line = current().line;
        ExpressionPointer made = make(ExpressionKind::filter, line);
        made->name = dotted_name();
        made->filter = find_filter(made->name);
        made->parts.push_back(std::move(value));
        if (current().is_sign("(")) arguments(*made);
        value = checked(std::move(made));
    }
    return value;
}

ExpressionPointer ExpressionParser::test(ExpressionPointer value) {
    const int line = next().line;
    const bool negative = skip_name("not");
    ExpressionPointer made = make(ExpressionKind::test, line);
    made->name = dotted_name();
    made->test = find_test(made->name);
    made->parts.push_back(std::move(value));
    const Token& token = current();
    const bool begins_value = token.kind == TokenKind::name || token.kind == TokenKind::string ||
                              token.kind == TokenKind::integer || token.kind == TokenKind::real ||
                              token.is_sign("[") || token.is_sign("{");
    if (token.is_sign("(")) {
        arguments(*made);
    } else if (begins_value && !token.is_name("else") && !token.is_name("or") && !token.is_name("and")) {
        if (token.is_name("is")) fail("two tests cannot follow each other");
        made->parts.push_back(postfix(primary()));
    }
    made = checked(std::move(made));
    return negative ? make(ExpressionKind::logical_not, line, parts(std::move(made))) : std::move(made);
}

}  // namespace drover::jinja
