#pragma once

#include <string>
#include <string_view>

#include "text/jinja/arguments.h"
#include "text/jinja/runtime.h"

namespace drover::jinja {

/// value.name as Jinja reads it: a method or field of the object, or else an item of that name. Undefined if
/// there is neither, or if the sandbox forbids it.
Value attribute(Runtime& runtime, const Value& value, std::string_view name);

/// value[key]: an item, or else a method or field of that name.
Value item(Runtime& runtime, const Value& value, const Value& key);

/// A function of C++ that belongs to a value.
using MethodFunction = Value (*)(Runtime& runtime, const Value& self, const Arguments& arguments);

struct MethodObject : Object {
    Value self;
    MethodFunction function;
};

/// A method of Python's str; null if there is none of that name.
MethodFunction text_method(std::string_view name);

/// What the interpreter adds: loops and macros.
struct ActiveObject : Object {
    /// Missing if there is no such field.
    virtual Value field(Runtime& runtime, const Value& self, std::string_view name) = 0;
    /// repr()
    virtual std::string shown() = 0;
};

}  // namespace drover::jinja
