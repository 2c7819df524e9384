#pragma once

#include <string>

#include "text/jinja/arguments.h"
#include "text/jinja/runtime.h"

namespace drover::jinja {

/// format % values, where `values` is a tuple, a dict or a single value.
Value percent_formatted(Runtime& runtime, const Value& format, const Value& values);

/// format.format(*arguments, **arguments)
Value brace_formatted(Runtime& runtime, const Value& format, const Arguments& arguments);

}  // namespace drover::jinja
