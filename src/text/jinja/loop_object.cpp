#include "text/jinja/loop_object.h"

#include <fmt/format.h>

#include "text/jinja/operations.h"

namespace drover::jinja {
namespace {

Value loop_cycle(Runtime& runtime, const Value& self, const Arguments& arguments) {
    if (arguments.positional.empty() || !arguments.named.empty()) runtime.fail("no items for cycling given");
    const auto count = static_cast<std::int64_t>(arguments.positional.size());
    return arguments.positional[static_cast<std::size_t>(self.as<LoopObject>().index() % count)];
}

Value loop_changed(Runtime& runtime, const Value& self, const Arguments& arguments) {
    return self.as<LoopObject>().changed(runtime, arguments);
}

Value method_of(Runtime& runtime, const Value& self, MethodFunction function) {
    auto& method = runtime.make<MethodObject>();
    method.self = self;
    method.function = function;
    return {Kind::method, &method};
}

}  // namespace

void LoopObject::begin(Runtime& runtime, const Value& source, const Statement& statement,
                       Interpreter& interpreter, Activation& activation) {
    statement_ = &statement;
    interpreter_ = &interpreter;
    activation_ = &activation;
    if (source.is(Kind::iterator))
        iterator_ = &source.as<IteratorObject>();
    else
        items_ = items_of(runtime, source);
}

bool LoopObject::pull(Value& item) {
    const std::span<const Value> items = iterator_ ? std::span<const Value>(iterator_->items) : items_;
    std::size_t& position = iterator_ ? iterator_->next : position_;
    while (position < items.size()) {
        item = items[position++];
        if (!statement_->condition || interpreter_->passes(*statement_, *activation_, item)) return true;
    }
    return false;
}

const Value* LoopObject::peek() {
    Value item;
    if (ahead_.empty() && pull(item)) ahead_.push_back(item);
    return ahead_.empty() ? nullptr : &ahead_.front();
}

bool LoopObject::advance(Value& item) {
    if (!peek()) return false;
    item = ahead_.front();
    ahead_.pop_front();
    ++index_;
    before_ = current_;
    current_ = item;
    return true;
}

std::int64_t LoopObject::length() {
    if (!iterator_ && !statement_->condition) return static_cast<std::int64_t>(items_.size());
    for (Value item; pull(item);) ahead_.push_back(item);
    return index_ + 1 + static_cast<std::int64_t>(ahead_.size());
}

std::string LoopObject::shown() {
    return fmt::format("<LoopContext {}/{}>", index_ + 1, length());
}

Value LoopObject::changed(Runtime& runtime, const Arguments& arguments) {
    const Value now = runtime.tuple(arguments.positional);
    if (!last_changed_.is_missing() && equal(runtime, last_changed_, now)) return Value::boolean(false);
    last_changed_ = now;
    return Value::boolean(true);
}

Value LoopObject::field(Runtime& runtime, const Value& self, std::string_view name) {
    if (name == "index") return Value::integer(index_ + 1);
    if (name == "index0") return Value::integer(index_);
    if (name == "first") return Value::boolean(index_ == 0);
    if (name == "last") return Value::boolean(peek() == nullptr);
    if (name == "length") return Value::integer(length());
    if (name == "revindex") return Value::integer(length() - index_);
    if (name == "revindex0") return Value::integer(length() - index_ - 1);
    if (name == "depth") return Value::integer(1);
    if (name == "depth0") return Value::integer(0);
    if (name == "previtem") return index_ == 0 ? runtime.undefined("there is no previous item") : before_;
    if (name == "nextitem") {
        const Value* next = peek();
        return next ? *next : runtime.undefined("there is no next item");
    }
    if (name == "cycle") return method_of(runtime, self, loop_cycle);
    if (name == "changed") return method_of(runtime, self, loop_changed);
    return {};
}

}  // namespace drover::jinja
