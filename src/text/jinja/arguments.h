#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/runtime.h"

namespace drover::jinja {

/// What a call gives: f(1, 2, name=3).
struct Arguments {
    std::vector<Value> positional;
    std::vector<std::pair<std::string, Value>> named;
};

/// Fails: a call of `what` has arguments that it does not take, or lacks some.
[[noreturn]] void wrong_arguments(Runtime& runtime, std::string_view what);

/// The arguments of `what` in the order of its parameters; those not given are missing. The first `required`
/// must be given.
template <std::size_t count>
std::array<Value, count> bound(Runtime& runtime, std::string_view what, const Arguments& given,
                               const std::array<std::string_view, count>& parameters, std::size_t required) {
    std::array<Value, count> values;
    if (given.positional.size() > count) wrong_arguments(runtime, what);
    for (std::size_t i = 0; i < given.positional.size(); ++i) values[i] = given.positional[i];
    for (const auto& [name, value] : given.named) {
        std::size_t at = 0;
        while (at < count && parameters[at] != name) ++at;
        if (at == count || !values[at].is_missing()) wrong_arguments(runtime, what);
        values[at] = value;
    }
    for (std::size_t i = 0; i < required; ++i)
        if (values[i].is_missing()) wrong_arguments(runtime, what);
    return values;
}

/// For calls without arguments.
inline void expect_no_arguments(Runtime& runtime, std::string_view what, const Arguments& given) {
    if (!given.positional.empty() || !given.named.empty()) wrong_arguments(runtime, what);
}

}  // namespace drover::jinja
