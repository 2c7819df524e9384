#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "text/jinja/attributes.h"
#include "text/jinja/runtime.h"
#include "text/jinja/syntax_tree.h"

namespace drover::jinja {

/// The variables of a function that runs, or ran: macros keep those around them.
struct Activation : Object {
    std::vector<Value> slots;
    Activation* outer = nullptr;
};

/// A macro, or the body of a call block.
struct MacroObject : ActiveObject {
    const Statement* definition = nullptr;
    Activation* around = nullptr;
    Value field(Runtime& runtime, const Value& self, std::string_view name) override;
    std::string shown() override;
};

/// Text that a {% generation %} block gave: it begins at a byte of the output and has so many characters.
struct Generated {
    std::size_t begin;
    std::size_t characters;
};

class Interpreter {
  public:
    Interpreter(Runtime& runtime, const Limits& limits, std::unordered_map<std::string, Value> context)
        : runtime_(runtime), limits_(limits), context_(std::move(context)) {}

    /// The text of the template.
    std::string run(const SyntaxTree& tree);
    const std::vector<Generated>& generated() const { return generated_; }

    // For loops, which evaluate their condition item by item.
    bool passes(const Statement& loop, Activation& activation, const Value& item);

  private:
    enum class Flow { on, leave_loop, next_round };

    /// Texts go to the output, or to the innermost block that collects its text.
    class Collecting;

    void enter(const Frame& frame, Activation& activation);
    Flow body(const Body& statements, Activation& activation);
    Flow statement(const Statement& s, Activation& activation);
    Flow conditional(const Statement& s, Activation& activation);
    Flow loop(const Statement& s, Activation& activation);
    Flow set_block(const Statement& s, Activation& activation);
    Flow filter_block(const Statement& s, Activation& activation);
    void generation(const Statement& s, Activation& activation);
    void write(const std::string& text);

    Value evaluate(const Expression& e, Activation& activation);
    Value evaluate_kind(const Expression& e, Activation& activation);
    Value optional(const ExpressionPointer& e, Activation& activation);
    Value dict(const Expression& e, Activation& activation);
    Value concatenation(const Expression& e, Activation& activation);
    bool comparison(const Expression& e, Activation& activation);
    Value call(const Expression& e, Activation& activation, const Value* caller);
    Value filtered(const Expression& e, Activation& activation, const Value* block_text);
    Arguments arguments(const Expression& e, Activation& activation);
    Value invoke(const Value& function, const Arguments& arguments);
    Value invoke_macro(const MacroObject& macro, const Arguments& arguments);
    void assign(const Expression& target, Activation& activation, const Value& value);
    void expect_namespaces(const Expression& target, Activation& activation);
    Value make_macro(const Statement& s, Activation& activation);

    Value& slot(Activation& activation, const Place& place);
    Value load(Activation& activation, const Place& place, std::string_view name);

    Runtime& runtime_;
    const Limits& limits_;
    std::unordered_map<std::string, Value> context_;
    std::string output_;
    std::string* target_ = &output_;
    std::vector<Generated> generated_;
};

}  // namespace drover::jinja
