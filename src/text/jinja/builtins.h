#pragma once

#include <string_view>
#include <vector>

#include "text/jinja/arguments.h"
#include "text/jinja/runtime.h"

namespace drover::jinja {

/// value | filter(arguments)
using Filter = Value (*)(Runtime& runtime, const Value& value, const Arguments& arguments);
/// value is test(arguments)
using Test = bool (*)(Runtime& runtime, const Value& value, const Arguments& arguments);
/// function(arguments)
using Function = Value (*)(Runtime& runtime, const Arguments& arguments);

template <class Kind>
struct Named {
    std::string_view name;
    Kind function;
};

/// Null if there is none of that name.
Filter find_filter(std::string_view name);
Test find_test(std::string_view name);

/// range, dict, namespace, cycler, joiner, raise_exception, strftime_now.
std::vector<Named<Function>> global_functions();

struct FunctionObject : Object {
    Function function;
};

/// The filters that work on texts and numbers, and those that work on sequences.
std::vector<Named<Filter>> text_filters();
std::vector<Named<Filter>> sequence_filters();

}  // namespace drover::jinja
