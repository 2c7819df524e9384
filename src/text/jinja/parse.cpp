#include "text/jinja/parse.h"

#include <fmt/format.h>

#include <algorithm>

#include "text/jinja/expression_parser.h"

namespace drover::jinja {
namespace {

using StatementPointer = std::unique_ptr<Statement>;

/// Reads statements, and expressions through ExpressionParser.
class TemplateParser {
  public:
    TemplateParser(std::string_view source, std::string_view name, SyntaxTree& tree)
        : in_(tokenize(source, name), name, tree), tree_(tree) {}

    void run() {
        tree_.body = body({});
        if (in_.current().kind != TokenKind::end) in_.fail_unexpected();
    }

  private:
    using Ends = std::initializer_list<std::string_view>;

    /// Statements up to one of the tags `ends`, whose name is then the current token; up to the end of the
    /// template if there are none.
    Body body(Ends ends) {
        const ExpressionParser::Level level(in_);
        Body statements;
        for (;;) {
            const Token& token = in_.current();
            if (token.kind == TokenKind::end) {
                if (ends.size() > 0) in_.fail(fmt::format("the template ends before '{}'", *ends.begin()));
                return statements;
            }
            if (token.kind == TokenKind::data) {
                StatementPointer data = make(StatementKind::data, token.line);
                data->data = in_.constant_text(in_.next().text);
                statements.push_back(std::move(data));
            } else if (token.kind == TokenKind::variable_begin) {
                StatementPointer output = make(StatementKind::output, in_.next().line);
                output->expression = in_.tuple();
                in_.expect(TokenKind::variable_end);
                statements.push_back(std::move(output));
            } else {
                in_.expect(TokenKind::block_begin);
                const Token& tag = in_.current();
                if (std::any_of(ends.begin(), ends.end(),
                                [&](std::string_view end) { return tag.is_name(end); }))
                    return statements;
                statement(statements);
                in_.expect(TokenKind::block_end);
            }
        }
    }

    /// The body of a block: after the end of its first tag, up to one of the tags `ends`.
    Body block(Ends ends) {
        in_.skip_sign(":");
        in_.expect(TokenKind::block_end);
        return body(ends);
    }
    /// The same, up to the one tag `end`, which is passed.
    Body whole_block(std::string_view end) {
        Body statements = block({end});
        in_.next();
        return statements;
    }

    static StatementPointer make(StatementKind kind, int line) {
        auto made = std::make_unique<Statement>();
        made->kind = kind;
        made->line = line;
        return made;
    }

    void statement(Body& statements) {
        const Token tag = in_.expect(TokenKind::name);
        StatementPointer made;
        if (tag.text == "if")
            made = conditional(tag.line);
        else if (tag.text == "for")
            made = loop(tag.line);
        else if (tag.text == "set")
            made = set(tag.line);
        else if (tag.text == "macro")
            made = macro(tag.line);
        else if (tag.text == "call")
            made = call_block(tag.line);
        else if (tag.text == "filter")
            made = filter_block(tag.line);
        else if (tag.text == "with")
            made = with(tag.line);
        else if (tag.text == "generation")
            made = generation(tag.line);
        else if (tag.text == "break" || tag.text == "continue")
            made = loop_control(tag);
        else if (tag.text == "print")
            return print(tag.line, statements);
        else
            unknown(tag);
        statements.push_back(std::move(made));
    }

    [[noreturn]] void unknown(const Token& tag) const {
        constexpr std::string_view others[] = {"block", "extends", "include", "import", "from", "autoescape"};
        if (std::find(std::begin(others), std::end(others), tag.text) != std::end(others))
            in_.fail(fmt::format("the tag '{}' is not supported", tag.text), tag.line);
        in_.fail(fmt::format("no tag '{}' is known here", tag.text), tag.line);
    }

    StatementPointer conditional(int line) {
        StatementPointer made = make(StatementKind::conditional, line);
        made->expression = in_.tuple(false);
        made->body = block({"elif", "else", "endif"});
        for (;;) {
            const Token end = in_.next();
            if (end.text == "elif") {
                ExpressionPointer condition = in_.tuple(false);
                Body branch = block({"elif", "else", "endif"});
                made->more.emplace_back(std::move(condition), std::move(branch));
                continue;
            }
            if (end.text == "else") made->otherwise = whole_block("endif");
            return made;
        }
    }

    StatementPointer loop(int line) {
        StatementPointer made = make(StatementKind::loop, line);
        const std::size_t begin = in_.place();
        made->target = in_.target(false, {"in"});
        const std::size_t end = in_.place();
        in_.expect_name("in");
        made->expression = in_.tuple(false, {"recursive"});
        if (in_.skip_name("if")) {
            made->condition = in_.expression();
            const std::size_t after = in_.place();
            in_.go_to(begin);
            made->condition_target = in_.target(false, {"in"});
            if (in_.place() != end) in_.fail("a loop's target cannot be read");
            in_.go_to(after);
        }
        if (in_.current().is_name("recursive")) in_.fail("recursive loops are not supported");
        ++loops_;
        made->body = block({"endfor", "else"});
        --loops_;
        if (in_.next().text == "else") made->otherwise = whole_block("endfor");
        return made;
    }

    StatementPointer loop_control(const Token& tag) {
        if (loops_ == 0) in_.fail(fmt::format("'{}' outside of a loop", tag.text), tag.line);
        return make(tag.text == "break" ? StatementKind::break_loop : StatementKind::continue_loop, tag.line);
    }

    StatementPointer set(int line) {
        ExpressionPointer target = in_.target(true);
        StatementPointer made;
        if (in_.skip_sign("=")) {
            made = make(StatementKind::set, line);
            made->expression = in_.tuple();
        } else {
            made = make(StatementKind::set_block, line);
            made->expression = in_.filters(nullptr, false);
            made->body = whole_block("endset");
        }
        made->target = std::move(target);
        return made;
    }

    void signature(MacroParts& macro) {
        in_.expect_sign("(");
        while (!in_.current().is_sign(")")) {
            if (!macro.parameters.empty()) in_.expect_sign(",");
            const Token parameter = in_.expect(TokenKind::name);
            if (std::find(macro.parameters.begin(), macro.parameters.end(), parameter.text) !=
                macro.parameters.end())
                in_.fail(fmt::format("two parameters are named '{}'", parameter.text), parameter.line);
            macro.parameters.push_back(parameter.text);
            if (in_.skip_sign("="))
                macro.defaults.push_back(in_.expression());
            else if (!macro.defaults.empty())
                in_.fail("a parameter without a default follows one with a default");
        }
        in_.expect_sign(")");
    }

    /// A body that is a function of its own, which "break" cannot leave.
    Body function_body(std::string_view end) {
        const int outer_loops = std::exchange(loops_, 0);
        Body statements = whole_block(end);
        loops_ = outer_loops;
        return statements;
    }

    StatementPointer macro(int line) {
        StatementPointer made = make(StatementKind::macro, line);
        made->macro.name = in_.expect(TokenKind::name).text;
        signature(made->macro);
        made->body = function_body("endmacro");
        return made;
    }

    StatementPointer call_block(int line) {
        StatementPointer made = make(StatementKind::call_block, line);
        made->macro.name = "caller";
        if (in_.current().is_sign("(")) signature(made->macro);
        made->expression = in_.expression();
        if (made->expression->kind != ExpressionKind::call) in_.fail("'call' wants a call", line);
        made->body = function_body("endcall");
        return made;
    }

    StatementPointer generation(int line) {
        StatementPointer made = make(StatementKind::generation, line);
        made->body = function_body("endgeneration");
        tree_.has_generation = true;
        return made;
    }

    StatementPointer filter_block(int line) {
        StatementPointer made = make(StatementKind::filter_block, line);
        made->expression = in_.filters(nullptr, true);
        made->body = whole_block("endfilter");
        return made;
    }

    StatementPointer with(int line) {
        StatementPointer made = make(StatementKind::with, line);
        while (in_.current().kind != TokenKind::block_end) {
            if (!made->targets.empty()) in_.expect_sign(",");
            made->targets.push_back(in_.target(false));
            in_.expect_sign("=");
            made->values.push_back(in_.expression());
        }
        made->body = whole_block("endwith");
        return made;
    }

    void print(int line, Body& statements) {
        for (bool first = true; in_.current().kind != TokenKind::block_end; first = false) {
            if (!first) in_.expect_sign(",");
            StatementPointer made = make(StatementKind::output, line);
            made->expression = in_.expression();
            statements.push_back(std::move(made));
        }
    }

    ExpressionParser in_;
    SyntaxTree& tree_;
    int loops_ = 0;  // around the current statement, in its function
};

}  // namespace

SyntaxTree parse_template(std::string_view source, std::string_view name) {
    SyntaxTree tree;
    TemplateParser(source, name, tree).run();
    bind_names(tree, name);
    return tree;
}

}  // namespace drover::jinja
