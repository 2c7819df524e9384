#pragma once

#include <deque>
#include <span>

#include "text/jinja/interpreter.h"

namespace drover::jinja {

/// The variable "loop", and what gives a loop its items. Like Jinja's it reads no further ahead than it is
/// asked to.
struct LoopObject : ActiveObject {
    /// `source` is what the loop goes through; with a condition, `interpreter` tests each item.
    void begin(Runtime& runtime, const Value& source, const Statement& statement, Interpreter& interpreter,
               Activation& activation);
    /// Goes on to the next item; false if there is none.
    bool advance(Value& item);
    Value field(Runtime& runtime, const Value& self, std::string_view name) override;
    std::string shown() override;

    Value changed(Runtime& runtime, const Arguments& arguments);
    std::int64_t index() const { return index_; }

  private:
    bool pull(Value& item);
    const Value* peek();
    std::int64_t length();

    std::span<const Value> items_;
    std::size_t position_ = 0;
    IteratorObject* iterator_ = nullptr;
    const Statement* statement_ = nullptr;
    Interpreter* interpreter_ = nullptr;
    Activation* activation_ = nullptr;
    std::deque<Value> ahead_;
    std::int64_t index_ = -1;
    Value current_, before_, last_changed_;
};

}  // namespace drover::jinja
