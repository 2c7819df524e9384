#include "text/jinja/interpreter.h"

#include <fmt/format.h>

#include "core/number_text.h"
#include "text/jinja/characters.h"
#include "text/jinja/loop_object.h"
#include "text/jinja/operations.h"

namespace drover::jinja {

/// Sends what is written into a text of its own while it lives.
class Interpreter::Collecting {
  public:
    explicit Collecting(Interpreter& interpreter)
        : interpreter_(interpreter), outer_(std::exchange(interpreter.target_, &text_)) {}
    ~Collecting() { interpreter_.target_ = outer_; }
    Collecting(const Collecting&) = delete;
    /// What was written; nothing may be written afterwards.
    Value take() { return interpreter_.runtime_.text(std::move(text_)); }

  private:
    Interpreter& interpreter_;
    std::string text_;
    std::string* outer_;
};

Value MacroObject::field(Runtime& runtime, const Value&, std::string_view name) {
    if (name == "name") return runtime.text(definition->macro.name);
    if (name == "caller") return Value::boolean(definition->macro.caller_slot >= 0);
    if (name == "catch_kwargs") return Value::boolean(definition->macro.kwargs_slot >= 0);
    if (name == "catch_varargs") return Value::boolean(definition->macro.varargs_slot >= 0);
    if (name != "arguments") return {};
    std::vector<Value> names;
    for (const std::string& parameter : definition->macro.parameters)
        names.push_back(runtime.text(parameter));
    return runtime.tuple(std::move(names));
}

std::string MacroObject::shown() {
    return fmt::format("<Macro {}>", python_quoted(definition->macro.name));
}

std::string Interpreter::run(const SyntaxTree& tree) {
    auto& activation = runtime_.make<Activation>(static_cast<std::size_t>(tree.slot_count) * sizeof(Value));
    activation.slots.resize(static_cast<std::size_t>(tree.slot_count));
    enter(tree.frame, activation);
    body(tree.body, activation);
    return std::move(output_);
}

Value& Interpreter::slot(Activation& activation, const Place& place) {
    Activation* at = &activation;
    for (int i = 0; i < place.hops; ++i) at = at->outer;
    return at->slots[static_cast<std::size_t>(place.slot)];
}

Value Interpreter::load(Activation& activation, const Place& place, std::string_view name) {
    const Value value = slot(activation, place);
    return value.is_missing() ? runtime_.undefined(fmt::format("'{}' is undefined", name)) : value;
}

void Interpreter::enter(const Frame& frame, Activation& activation) {
    runtime_.step(frame.loads.size());
    for (const Load& load : frame.loads) {
        Value& value = activation.slots[static_cast<std::size_t>(load.slot)];
        switch (load.from) {
            case Load::From::nothing:
                value = {};
                break;
            case Load::From::context: {
                const auto found = context_.find(load.name);
                value = found == context_.end() ? Value() : found->second;
                break;
            }
            case Load::From::outer:
                value = slot(activation, load.outer);
                break;
            case Load::From::parameter:
                break;
        }
    }
}

void Interpreter::write(const std::string& text) {
    if (target_ == &output_ && text.size() > limits_.output - output_.size())
        runtime_.too_much(fmt::format("the text is longer than {}", bytes_text(limits_.output)));
    runtime_.expect_room(target_->size() + text.size());
    runtime_.step(text.size() / 64);
    *target_ += text;
}

Interpreter::Flow Interpreter::body(const Body& statements, Activation& activation) {
    const Runtime::Level level(runtime_);
    for (const auto& made : statements)
        if (const Flow flow = statement(*made, activation); flow != Flow::on) return flow;
    return Flow::on;
}

Interpreter::Flow Interpreter::statement(const Statement& s, Activation& activation) {
    runtime_.step();
    runtime_.at_line(s.line);
    switch (s.kind) {
        case StatementKind::data:
            write(s.data.text());
            return Flow::on;
        case StatementKind::output: {
            const Value value = evaluate(*s.expression, activation);
            runtime_.at_line(s.line);
            value.is_text() ? write(value.text()) : write(text_of(runtime_, value));
            return Flow::on;
        }
        case StatementKind::conditional:
            return conditional(s, activation);
        case StatementKind::loop:
            return loop(s, activation);
        case StatementKind::set: {
            expect_namespaces(*s.target, activation);
            const Value value = evaluate(*s.expression, activation);
            assign(*s.target, activation, value);
            return Flow::on;
        }
        case StatementKind::set_block:
            return set_block(s, activation);
        case StatementKind::filter_block:
            return filter_block(s, activation);
        case StatementKind::with: {
            enter(s.frame, activation);
            for (std::size_t i = 0; i < s.targets.size(); ++i) {
                const Value value = evaluate(*s.values[i], activation);
                assign(*s.targets[i], activation, value);
            }
            return body(s.body, activation);
        }
        case StatementKind::macro:
            slot(activation, s.place) = make_macro(s, activation);
            return Flow::on;
        case StatementKind::call_block: {
            const Value caller = make_macro(s, activation);
            write(text_of(runtime_, call(*s.expression, activation, &caller)));
            return Flow::on;
        }
        case StatementKind::generation:
            generation(s, activation);
            return Flow::on;
        case StatementKind::break_loop:
            return Flow::leave_loop;
        case StatementKind::continue_loop:
            return Flow::next_round;
    }
    return Flow::on;
}

Interpreter::Flow Interpreter::conditional(const Statement& s, Activation& activation) {
    if (truth(evaluate(*s.expression, activation))) return body(s.body, activation);
    for (const auto& [condition, branch] : s.more)
        if (truth(evaluate(*condition, activation))) return body(branch, activation);
    return body(s.otherwise, activation);
}

bool Interpreter::passes(const Statement& loop, Activation& activation, const Value& item) {
    enter(loop.condition_frame, activation);
    assign(*loop.condition_target, activation, item);
    return truth(evaluate(*loop.condition, activation));
}

Interpreter::Flow Interpreter::loop(const Statement& s, Activation& activation) {
    const Value source = evaluate(*s.expression, activation);
    auto& state = runtime_.make<LoopObject>();
    state.begin(runtime_, source, s, *this, activation);
    bool finished_a_round = false;
    for (Value item; state.advance(item);) {
        runtime_.step();
        runtime_.at_line(s.line);
        activation.slots[static_cast<std::size_t>(s.loop_slot)] = {Kind::loop, &state};
        assign(*s.target, activation, item);
        enter(s.frame, activation);
        const Flow flow = body(s.body, activation);
        if (flow == Flow::leave_loop) break;
        finished_a_round = finished_a_round || flow == Flow::on;
    }
    // As in Jinja, a round that "continue" or "break" cut short does not count.
    if (finished_a_round || s.otherwise.empty()) return Flow::on;
    enter(s.otherwise_frame, activation);
    return body(s.otherwise, activation);
}

Interpreter::Flow Interpreter::set_block(const Statement& s, Activation& activation) {
    Value text;
    {
        Collecting collecting(*this);
        enter(s.frame, activation);
        if (const Flow flow = body(s.body, activation); flow != Flow::on) return flow;
        text = collecting.take();
    }
    assign(*s.target, activation, s.expression ? filtered(*s.expression, activation, &text) : text);
    return Flow::on;
}

Interpreter::Flow Interpreter::filter_block(const Statement& s, Activation& activation) {
    Value text;
    {
        Collecting collecting(*this);
        enter(s.frame, activation);
        if (const Flow flow = body(s.body, activation); flow != Flow::on) return flow;
        text = collecting.take();
    }
    write(text_of(runtime_, filtered(*s.expression, activation, &text)));
    return Flow::on;
}

void Interpreter::generation(const Statement& s, Activation& activation) {
    const Value block = make_macro(s, activation);
    const Value text = invoke_macro(block.as<MacroObject>(), {});
    generated_.push_back({output_.size(), text.as<TextObject>().characters});
    write(text.text());
}

Value Interpreter::make_macro(const Statement& s, Activation& activation) {
    auto& macro = runtime_.make<MacroObject>();
    macro.definition = &s;
    macro.around = &activation;
    return {Kind::macro, &macro};
}

void Interpreter::expect_namespaces(const Expression& target, Activation& activation) {
    if (target.kind == ExpressionKind::namespace_target &&
        !slot(activation, target.place).is(Kind::name_space))
        runtime_.fail("cannot assign attribute on non-namespace object");
    for (const ExpressionPointer& part : target.parts) expect_namespaces(*part, activation);
}

void Interpreter::assign(const Expression& target, Activation& activation, const Value& value) {
    if (target.kind == ExpressionKind::name) {
        slot(activation, target.place) = value;
        return;
    }
    if (target.kind == ExpressionKind::namespace_target) {
        const Value space = slot(activation, target.place);
        if (!space.is(Kind::name_space)) runtime_.fail("cannot assign attribute on non-namespace object");
        set_entry(runtime_, *space.as<NamespaceObject>().attributes, runtime_.text(target.attribute), value);
        return;
    }
    const std::span<const Value> items = items_of(runtime_, value);
    if (items.size() != target.parts.size())
        runtime_.fail(fmt::format("expected {} values to unpack, got {}", target.parts.size(), items.size()));
    for (std::size_t i = 0; i < items.size(); ++i) assign(*target.parts[i], activation, items[i]);
}

Value Interpreter::evaluate(const Expression& e, Activation& activation) {
    runtime_.step();
    if (e.kind == ExpressionKind::constant) return e.constant;
    if (e.kind == ExpressionKind::name) return load(activation, e.place, e.name);
    const Runtime::Level level(runtime_);
    runtime_.at_line(e.line);
    return evaluate_kind(e, activation);
}

Value Interpreter::optional(const ExpressionPointer& e, Activation& activation) {
    return e ? evaluate(*e, activation) : Value();
}

Value Interpreter::evaluate_kind(const Expression& e, Activation& activation) {
    const auto part = [&](std::size_t i) { return evaluate(*e.parts[i], activation); };
    const auto parts = [&] {
        std::vector<Value> values;
        for (const ExpressionPointer& each : e.parts) values.push_back(evaluate(*each, activation));
        return values;
    };
    switch (e.kind) {
        case ExpressionKind::list:
            return runtime_.list(parts());
        case ExpressionKind::tuple:
            return runtime_.tuple(parts());
        case ExpressionKind::dict:
            return dict(e, activation);
        case ExpressionKind::attribute: {
            const Value owner = part(0);
            runtime_.at_line(e.line);
            return attribute(runtime_, owner, e.name);
        }
        case ExpressionKind::item: {
            const Value owner = part(0), key = part(1);
            runtime_.at_line(e.line);
            return item(runtime_, owner, key);
        }
        case ExpressionKind::slice: {
            const Value owner = part(0);
            const Value start = optional(e.parts[1], activation), stop = optional(e.parts[2], activation);
            const Value step = optional(e.parts[3], activation);
            runtime_.at_line(e.line);
            return sliced(runtime_, owner, start, stop, step);
        }
        case ExpressionKind::call:
            return call(e, activation, nullptr);
        case ExpressionKind::filter:
            return filtered(e, activation, nullptr);
        case ExpressionKind::test: {
            if (!e.test) runtime_.fail(fmt::format("no test is named '{}'", e.name));
            const Value value = part(0);
            const Arguments given = arguments(e, activation);
            runtime_.at_line(e.line);
            return Value::boolean(e.test(runtime_, value, given));
        }
        case ExpressionKind::negative:
            return negated(runtime_, part(0));
        case ExpressionKind::positive: {
            const Value value = part(0);
            if (!value.is_number()) negated(runtime_, value);  // fails in the same way
            return value.is(Kind::real) ? value : Value::integer(value.whole());
        }
        case ExpressionKind::logical_not:
            return Value::boolean(!truth(part(0)));
        case ExpressionKind::logical_and: {
            const Value left = part(0);
            return truth(left) ? part(1) : left;
        }
        case ExpressionKind::logical_or: {
            const Value left = part(0);
            return truth(left) ? left : part(1);
        }
        case ExpressionKind::arithmetic: {
            const Value left = part(0), right = part(1);
            runtime_.at_line(e.line);
            return arithmetic(runtime_, e.operation, left, right);
        }
        case ExpressionKind::concatenation:
            return concatenation(e, activation);
        case ExpressionKind::comparison:
            return Value::boolean(comparison(e, activation));
        case ExpressionKind::conditional: {
            if (truth(part(0))) return part(1);
            if (e.parts[2]) return part(2);
            return runtime_.undefined(fmt::format(
                "the inline if-expression on line {} evaluated to false and no else section was defined",
                e.line));
        }
        default:
            runtime_.fail("this expression has no value");
    }
}

Value Interpreter::dict(const Expression& e, Activation& activation) {
    DictObject& dict = runtime_.dict();
    for (std::size_t i = 0; i < e.parts.size(); i += 2) {
        const Value key = evaluate(*e.parts[i], activation), value = evaluate(*e.parts[i + 1], activation);
        set_entry(runtime_, dict, key, value);
    }
    return {Kind::dict, &dict};
}

Value Interpreter::concatenation(const Expression& e, Activation& activation) {
    std::string text;
    for (const ExpressionPointer& part : e.parts) {
        const Value value = evaluate(*part, activation);
        if (value.is_text())
            text += value.text();
        else
            text += text_of(runtime_, value);
        runtime_.expect_room(text.size());
    }
    return runtime_.text(std::move(text));
}

bool Interpreter::comparison(const Expression& e, Activation& activation) {
    Value left = evaluate(*e.parts[0], activation);
    for (std::size_t i = 0; i < e.comparisons.size(); ++i) {
        const Value right = evaluate(*e.parts[i + 1], activation);
        runtime_.at_line(e.line);
        bool holds = false;
        switch (e.comparisons[i]) {
            case Comparison::equal:
                holds = equal(runtime_, left, right);
                break;
            case Comparison::different:
                holds = !equal(runtime_, left, right);
                break;
            case Comparison::less:
                holds = ordered(runtime_, left, right, Order::less);
                break;
            case Comparison::less_or_equal:
                holds = ordered(runtime_, left, right, Order::less_or_equal);
                break;
            case Comparison::greater:
                holds = ordered(runtime_, left, right, Order::greater);
                break;
            case Comparison::greater_or_equal:
                holds = ordered(runtime_, left, right, Order::greater_or_equal);
                break;
            case Comparison::in:
                holds = contains(runtime_, right, left);
                break;
            case Comparison::not_in:
                holds = !contains(runtime_, right, left);
                break;
        }
        if (!holds) return false;
        left = right;
    }
    return true;
}

Arguments Interpreter::arguments(const Expression& e, Activation& activation) {
    Arguments given;
    for (std::size_t i = 1; i < e.parts.size(); ++i)
        given.positional.push_back(evaluate(*e.parts[i], activation));
    for (const auto& [name, value] : e.named) given.named.emplace_back(name, evaluate(*value, activation));
    if (e.star) {
        const Value more = evaluate(*e.star, activation);
        const auto items = items_of(runtime_, more);
        given.positional.insert(given.positional.end(), items.begin(), items.end());
    }
    if (e.double_star) {
        const Value more = evaluate(*e.double_star, activation);
        if (!more.is_dict()) runtime_.fail("the argument after ** must be a mapping");
        for (const auto& [key, value] : more.dict().entries)
            given.named.emplace_back(expect_text(runtime_, key, "a keyword"), value);
    }
    runtime_.account((given.positional.size() + given.named.size()) * sizeof(Value));
    return given;
}

Value Interpreter::filtered(const Expression& e, Activation& activation, const Value* block_text) {
    runtime_.at_line(e.line);
    if (!e.filter) runtime_.fail(fmt::format("no filter is named '{}'", e.name));
    const Runtime::Level level(runtime_);
    Value value;
    if (!e.parts[0])
        value = *block_text;
    else if (block_text && e.parts[0]->kind == ExpressionKind::filter)
        value = filtered(*e.parts[0], activation, block_text);
    else
        value = evaluate(*e.parts[0], activation);
    const Arguments given = arguments(e, activation);
    runtime_.at_line(e.line);
    return e.filter(runtime_, value, given);
}

Value Interpreter::call(const Expression& e, Activation& activation, const Value* caller) {
    const Value function = evaluate(*e.parts[0], activation);
    Arguments given = arguments(e, activation);
    if (caller) given.named.emplace_back("caller", *caller);
    runtime_.at_line(e.line);
    return invoke(function, given);
}

Value Interpreter::invoke(const Value& function, const Arguments& arguments) {
    runtime_.step();
    switch (function.kind()) {
        case Kind::undefined:
            runtime_.fail(function.as<UndefinedObject>().message);
        case Kind::function:
            return function.as<FunctionObject>().function(runtime_, arguments);
        case Kind::method: {
            const auto& method = function.as<MethodObject>();
            return method.function(runtime_, method.self, arguments);
        }
        case Kind::macro:
            return invoke_macro(function.as<MacroObject>(), arguments);
        case Kind::joiner: {
            expect_no_arguments(runtime_, "a joiner", arguments);
            auto& joiner = function.as<JoinerObject>();
            return std::exchange(joiner.used, true) ? joiner.separator : runtime_.text("");
        }
        default:
            runtime_.fail(fmt::format("'{}' object is not callable", type_name(function)));
    }
}

Value Interpreter::invoke_macro(const MacroObject& macro, const Arguments& arguments) {
    const Runtime::Level level(runtime_);
    const Statement& definition = *macro.definition;
    const MacroParts& parts = definition.macro;
    const auto slots = static_cast<std::size_t>(parts.slot_count);
    auto& activation = runtime_.make<Activation>(slots * sizeof(Value));
    activation.slots.resize(slots);
    activation.outer = macro.around;
    const auto at = [&](int slot) -> Value& { return activation.slots[static_cast<std::size_t>(slot)]; };

    std::vector<std::pair<std::string, Value>> named = arguments.named;
    const auto take_named = [&](std::string_view name) {
        for (auto given = named.begin(); given != named.end(); ++given)
            if (given->first == name) {
                const Value value = given->second;
                named.erase(given);
                return value;
            }
        return Value();
    };
    const std::size_t count = parts.parameters.size();
    for (std::size_t i = 0; i < count; ++i)
        at(parts.slots[i]) =
            i < arguments.positional.size() ? arguments.positional[i] : take_named(parts.parameters[i]);
    if (parts.caller_slot >= 0) at(parts.caller_slot) = take_named("caller");
    if (parts.kwargs_slot >= 0) {
        DictObject& rest = runtime_.dict();
        for (const auto& [name, value] : named) set_entry(runtime_, rest, runtime_.text(name), value);
        at(parts.kwargs_slot) = {Kind::dict, &rest};
    } else if (!named.empty()) {
        runtime_.fail(
            fmt::format("macro '{}' takes no keyword argument '{}'", parts.name, named.front().first));
    }
    if (parts.varargs_slot >= 0) {
        std::vector<Value> rest;
        for (std::size_t i = count; i < arguments.positional.size(); ++i)
            rest.push_back(arguments.positional[i]);
        at(parts.varargs_slot) = runtime_.tuple(std::move(rest));
    } else if (arguments.positional.size() > count) {
        runtime_.fail(fmt::format("macro '{}' takes not more than {} argument(s)", parts.name, count));
    }

    enter(definition.frame, activation);
    const std::size_t without_default = count - parts.defaults.size();
    for (std::size_t i = 0; i < count; ++i) {
        Value& value = at(parts.slots[i]);
        if (!value.is_missing()) continue;
        const Value otherwise =
            i < without_default
                ? runtime_.undefined(fmt::format("parameter '{}' was not provided", parts.parameters[i]))
                : evaluate(*parts.defaults[i - without_default], activation);
        at(parts.slots[i]) = otherwise;
    }
    Collecting collecting(*this);
    body(definition.body, activation);
    return collecting.take();
}

}  // namespace drover::jinja
