// Scopes as Jinja's compiler makes them. A frame is a scope: the template, the body of a loop, of a macro, of
// a block that is set. What a frame sets is its own; when the frame is entered, such a variable begins with
// the value of the same name further out. An "if" makes no frame. Names that no frame sets come from the
// context.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "core/error.h"
#include "text/jinja/parse.h"
#include "text/jinja/token.h"

namespace drover::jinja {
namespace {

/// Macros, call blocks and the template itself: each has slots of its own while it runs.
struct FunctionScope {
    int slot_count = 0;
};

using From = Load::From;

/// The names of a frame. While the branches of an "if" are collected, each has a layer of its own over the
/// frame's (`below`).
struct Names {
    Names* outer = nullptr;  // the frame around this one
    Names* below = nullptr;
    FunctionScope* function = nullptr;
    std::map<std::string, From> loads;
    std::set<std::string> stores;
    std::map<std::string, int> slots;  // of the frame itself

    const From* find_here(const std::string& name) const {
        for (const Names* layer = this; layer; layer = layer->below)
            if (const auto found = layer->loads.find(name); found != layer->loads.end())
                return &found->second;
        return nullptr;
    }
    bool known(const std::string& name) const {
        for (const Names* frame = this; frame; frame = frame->outer)
            if (frame->find_here(name)) return true;
        return false;
    }
    bool stored(const std::string& name) const {
        for (const Names* layer = this; layer; layer = layer->below)
            if (layer->stores.contains(name)) return true;
        return false;
    }
    From outer_or(const std::string& name, From otherwise) const {
        return outer && outer->known(name) ? From::outer : otherwise;
    }

    void load(const std::string& name) {
        if (!known(name)) loads[name] = From::context;
    }
    void store(const std::string& name) {
        stores.insert(name);
        if (!find_here(name)) loads[name] = outer_or(name, From::nothing);
    }
    void parameter(const std::string& name) {
        stores.insert(name);
        loads[name] = From::parameter;
    }

    /// After an "if": what some branch sets must have a value in the others too.
    void take_branches(const std::vector<Names>& branches) {
        std::set<std::string> set;
        for (const Names& branch : branches)
            for (const std::string& name : branch.stores)
                if (!stored(name)) set.insert(name);
        for (const Names& branch : branches) {
            for (const auto& [name, from] : branch.loads) loads[name] = from;
            stores.insert(branch.stores.begin(), branch.stores.end());
        }
        for (const std::string& name : set) loads[name] = outer_or(name, From::context);
    }
};

/// Collects the names that a frame uses and sets, without looking into frames inside of it.
class Collector {
  public:
    explicit Collector(Names& names) : names_(&names) {}

    void expression(const ExpressionPointer& e) {
        if (!e) return;
        if (e->kind == ExpressionKind::name) names_->load(e->name);
        for (const ExpressionPointer& part : e->parts) expression(part);
        for (const auto& [name, value] : e->named) expression(value);
        expression(e->star);
        expression(e->double_star);
    }

    void target(const Expression& e, bool as_parameter) {
        if (e.kind == ExpressionKind::name)
            as_parameter ? names_->parameter(e.name) : names_->store(e.name);
        else if (e.kind == ExpressionKind::namespace_target)
            names_->load(e.name);
        for (const ExpressionPointer& part : e.parts) target(*part, as_parameter);
    }

    void body(const Body& statements) {
        for (const auto& made : statements) statement(*made);
    }

  private:
    void statement(const Statement& s) {
        switch (s.kind) {
            case StatementKind::conditional:
                conditional(s, 0);
                break;
            case StatementKind::set:
                expression(s.expression);
                target(*s.target, false);
                break;
            case StatementKind::set_block:
                target(*s.target, false);
                break;
            case StatementKind::macro:
                names_->store(s.macro.name);
                break;
            case StatementKind::with:
                for (const ExpressionPointer& value : s.values) expression(value);
                break;
            default:
                expression(s.expression);
        }
    }

    /// The "if" of the statement, or the elif number `which` − 1 with all that follow it.
    void conditional(const Statement& s, std::size_t which) {
        expression(which == 0 ? s.expression : s.more[which - 1].first);
        std::vector<Names> branches;
        const auto branch = [&](auto&& collect) {
            Names layer;
            layer.outer = names_->outer;
            layer.below = names_;
            Names* const frame = std::exchange(names_, &layer);
            collect();
            names_ = frame;
            branches.push_back(std::move(layer));
        };
        branch([&] { body(which == 0 ? s.body : s.more[which - 1].second); });
        if (which == 0) {
            // Jinja takes all of them as one branch, each an "if" of its own after the other.
            branch([&] {
                for (std::size_t i = 1; i <= s.more.size(); ++i) conditional(s, i);
            });
            branch([&] { body(s.otherwise); });
        }
        names_->take_branches(branches);
    }

    Names* names_;
};

/// Whether a name is used anywhere in a body.
class Usage {
  public:
    explicit Usage(std::string_view name) : name_(name) {}

    bool in(const Body& statements) const {
        for (const auto& made : statements)
            if (in(*made)) return true;
        return false;
    }

  private:
    bool in(const ExpressionPointer& e) const {
        if (!e) return false;
        if (e->kind == ExpressionKind::name && e->name == name_) return true;
        for (const ExpressionPointer& part : e->parts)
            if (in(part)) return true;
        for (const auto& [name, value] : e->named)
            if (in(value)) return true;
        return in(e->star) || in(e->double_star);
    }
    bool in(const Statement& s) const {
        for (const ExpressionPointer& value : s.values)
            if (in(value)) return true;
        for (const auto& [condition, branch] : s.more)
            if (in(condition) || in(branch)) return true;
        for (const ExpressionPointer& value : s.macro.defaults)
            if (in(value)) return true;
        return in(s.expression) || in(s.condition) || in(s.body) || in(s.otherwise);
    }

    std::string_view name_;
};

/// Gives every name its variable, frame by frame from the outside.
class Binder {
  public:
    explicit Binder(std::string_view template_name) : template_name_(template_name) {}

    void bind(SyntaxTree& tree) {
        FunctionScope function;
        Names names;
        names.function = &function;
        Collector(names).body(tree.body);
        body(tree.body, names, false);
        tree.frame = finished(names);
        tree.slot_count = function.slot_count;
    }

  private:
    static Names inside(Names& outer, FunctionScope* function = nullptr) {
        Names names;
        names.outer = &outer;
        names.function = function ? function : outer.function;
        return names;
    }

    static int slot(Names& frame, const std::string& name) {
        const auto [found, added] = frame.slots.emplace(name, frame.function->slot_count);
        if (added) ++frame.function->slot_count;
        return found->second;
    }

    static Place place(Names& from, const std::string& name) {
        int hops = 0;
        for (Names* frame = &from; frame; frame = frame->outer) {
            if (frame->find_here(name)) return {hops, slot(*frame, name)};
            if (frame->outer && frame->outer->function != frame->function) ++hops;
        }
        bug("a name of a template has no frame");
    }

    /// What entering the frame does.
    static Frame finished(Names& names) {
        Frame frame;
        for (const auto& [name, from] : names.loads) {
            Load load{from, slot(names, name), name, {}};
            if (from == From::outer) {
                load.outer = place(*names.outer, name);
                if (names.outer->function != names.function) ++load.outer.hops;
            }
            frame.loads.push_back(std::move(load));
        }
        return frame;
    }

    void expression(const ExpressionPointer& e, Names& names, bool soft) {
        if (!e) return;
        if (e->kind == ExpressionKind::name || e->kind == ExpressionKind::namespace_target)
            e->place = place(names, e->name);
        soft = soft || e->kind == ExpressionKind::conditional;
        if (e->kind == ExpressionKind::filter && !e->filter && !soft)
            syntax_error(template_name_, e->line, fmt::format("no filter is named '{}'", e->name));
        if (e->kind == ExpressionKind::test && !e->test && !soft)
            syntax_error(template_name_, e->line, fmt::format("no test is named '{}'", e->name));
        for (const ExpressionPointer& part : e->parts) expression(part, names, soft);
        for (const auto& [name, value] : e->named) expression(value, names, soft);
        expression(e->star, names, soft);
        expression(e->double_star, names, soft);
    }

    void body(const Body& statements, Names& names, bool soft) {
        for (const auto& made : statements) statement(*made, names, soft);
    }

    void statement(Statement& s, Names& names, bool soft) {
        switch (s.kind) {
            case StatementKind::conditional:
                expression(s.expression, names, true);
                body(s.body, names, true);
                for (auto& [condition, branch] : s.more) {
                    expression(condition, names, true);
                    body(branch, names, true);
                }
                body(s.otherwise, names, true);
                break;
            case StatementKind::loop:
                loop(s, names, soft);
                break;
            case StatementKind::set:
                expression(s.expression, names, soft);
                expression(s.target, names, soft);
                break;
            case StatementKind::set_block:
            case StatementKind::filter_block: {
                if (s.target) expression(s.target, names, soft);
                Names inner = inside(names);
                Collector collector(inner);
                collector.body(s.body);
                collector.expression(s.expression);
                body(s.body, inner, false);
                expression(s.expression, inner, false);
                s.frame = finished(inner);
                break;
            }
            case StatementKind::with: {
                for (const ExpressionPointer& value : s.values) expression(value, names, soft);
                Names inner = inside(names);
                Collector collector(inner);
                for (const ExpressionPointer& target : s.targets) collector.target(*target, true);
                collector.body(s.body);
                for (const ExpressionPointer& target : s.targets) expression(target, inner, false);
                body(s.body, inner, false);
                s.frame = finished(inner);
                break;
            }
            case StatementKind::macro:
                s.place = place(names, s.macro.name);
                function(s, names);
                break;
            case StatementKind::call_block:
            case StatementKind::generation:
                expression(s.expression, names, soft);
                function(s, names);
                break;
            default:
                expression(s.expression, names, soft);
        }
    }

    void loop(Statement& s, Names& names, bool soft) {
        expression(s.expression, names, soft);

        Names inner = inside(names);
        inner.parameter("loop");
        Collector collector(inner);
        collector.target(*s.target, true);
        collector.body(s.body);
        expression(s.target, inner, false);
        s.loop_slot = slot(inner, "loop");
        body(s.body, inner, false);
        s.frame = finished(inner);

        if (s.condition) {
            Names condition = inside(names);
            Collector in_condition(condition);
            in_condition.target(*s.condition_target, true);
            in_condition.expression(s.condition);
            expression(s.condition_target, condition, false);
            expression(s.condition, condition, false);
            s.condition_frame = finished(condition);
        }
        Names otherwise = inside(names);
        Collector(otherwise).body(s.otherwise);
        body(s.otherwise, otherwise, false);
        s.otherwise_frame = finished(otherwise);
    }

    void function(Statement& s, Names& names) {
        FunctionScope scope;
        Names inner = inside(names, &scope);
        const auto has_parameter = [&](std::string_view name) {
            return std::find(s.macro.parameters.begin(), s.macro.parameters.end(), name) !=
                   s.macro.parameters.end();
        };
        for (const std::string& parameter : s.macro.parameters) inner.parameter(parameter);
        const auto special = [&](const std::string& name) {
            if (has_parameter(name) || !Usage(name).in(s.body)) return -1;
            inner.parameter(name);
            return slot(inner, name);
        };
        s.macro.caller_slot = special("caller");
        s.macro.kwargs_slot = special("kwargs");
        s.macro.varargs_slot = special("varargs");
        Collector collector(inner);
        for (const ExpressionPointer& value : s.macro.defaults) collector.expression(value);
        collector.body(s.body);
        for (const std::string& parameter : s.macro.parameters)
            s.macro.slots.push_back(slot(inner, parameter));
        for (const ExpressionPointer& value : s.macro.defaults) expression(value, inner, false);
        body(s.body, inner, false);
        s.frame = finished(inner);
        s.macro.slot_count = scope.slot_count;
    }

    std::string template_name_;
};

}  // namespace

void bind_names(SyntaxTree& tree, std::string_view name) {
    Binder(name).bind(tree);
}

}  // namespace drover::jinja
