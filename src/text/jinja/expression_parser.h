#pragma once

#include <algorithm>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/syntax_tree.h"
#include "text/jinja/token.h"

namespace drover::jinja {

/// Reads expressions by recursive descent, with Jinja's precedences: conditional, or, and, not, comparison,
/// + -, ~, * / // %, **, unary, subscripts and calls, filters and tests.
class ExpressionParser {
  public:
    ExpressionParser(std::vector<Token> tokens, std::string_view name, SyntaxTree& tree)
        : tokens_(std::move(tokens)), name_(name), tree_(tree) {}

    /// Reads "a, b" as a tuple. `ends` are names at which it may stop after a comma.
    ExpressionPointer tuple(bool conditionals = true, std::initializer_list<std::string_view> ends = {});
    ExpressionPointer expression(bool conditionals = true);
    /// Something that can be set: a name, a tuple of them, with `attributes` also name.attribute.
    ExpressionPointer target(bool attributes, std::initializer_list<std::string_view> ends = {});
    /// | filter | filter … after `value`, which may be null. Null if there is no filter.
    ExpressionPointer filters(ExpressionPointer value, bool inline_first);

    const Token& current() const { return tokens_[at_]; }
    const Token& ahead() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
    Token next() { return at_ + 1 < tokens_.size() ? tokens_[at_++] : tokens_[at_]; }
    /// For reading something twice.
    std::size_t place() const { return at_; }
    void go_to(std::size_t place) { at_ = place; }
    bool skip_name(std::string_view name);
    bool skip_sign(std::string_view sign);
    Token expect(TokenKind kind);
    void expect_name(std::string_view name);
    void expect_sign(std::string_view sign);
    [[noreturn]] void fail(std::string_view what, int line = 0) const;
    [[noreturn]] void fail_unexpected() const;
    Value constant_text(std::string text);

    /// Counts nesting while it lives.
    class Level {
      public:
        explicit Level(ExpressionParser& parser);
        ~Level() { --parser_.depth_; }
        Level(const Level&) = delete;

      private:
        ExpressionParser& parser_;
    };

  private:
    ExpressionPointer make(ExpressionKind kind, int line, std::vector<ExpressionPointer> parts = {});
    ExpressionPointer checked(ExpressionPointer made);
    ExpressionPointer conditional();
    ExpressionPointer logical_or();
    ExpressionPointer logical_and();
    ExpressionPointer logical_not();
    ExpressionPointer comparison();
    ExpressionPointer sum();
    ExpressionPointer concatenation();
    ExpressionPointer product();
    ExpressionPointer power();
    ExpressionPointer unary(bool with_filters = true);
    ExpressionPointer primary(bool attributes = false);
    ExpressionPointer list();
    ExpressionPointer dict();
    ExpressionPointer postfix(ExpressionPointer value);
    ExpressionPointer filters_and_tests(ExpressionPointer value);
    ExpressionPointer subscript(ExpressionPointer value);
    ExpressionPointer subscripted(ExpressionPointer value);
    ExpressionPointer call(ExpressionPointer function);
    ExpressionPointer test(ExpressionPointer value);
    void arguments(Expression& call);
    std::string dotted_name();
    bool at_tuple_end(std::initializer_list<std::string_view> ends) const;
    void expect_target(const Expression& target) const;

    std::vector<Token> tokens_;
    std::size_t at_ = 0;
    std::string name_;
    SyntaxTree& tree_;
    int depth_ = 0;
};

}  // namespace drover::jinja
