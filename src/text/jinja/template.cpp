#include "text/jinja/template.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "core/error.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/parse.h"
#include "text/utf8.h"

namespace drover::jinja {
namespace {

Value value_of(Runtime& runtime, const Json& json) {
    runtime.step();
    const Runtime::Level level(runtime);
    switch (json.type()) {
        case Json::value_t::boolean:
            return Value::boolean(json.get<bool>());
        case Json::value_t::number_integer:
            return Value::integer(json.get<std::int64_t>());
        case Json::value_t::number_unsigned:
            if (json.get<std::uint64_t>() >
                static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
                runtime.fail(fmt::format("the conversation has an integer that does not fit into 64 bits: {}",
                                         json.get<std::uint64_t>()));
            return Value::integer(json.get<std::int64_t>());
        case Json::value_t::number_float:
            return Value::real(json.get<double>());
        case Json::value_t::string: {
            const auto& text = json.get_ref<const std::string&>();
            if (valid_utf8_prefix(text) != text.size())
                runtime.fail("the conversation has a text that is not UTF-8");
            return runtime.text(text);
        }
        case Json::value_t::array: {
            std::vector<Value> items;
            for (const Json& item : json) items.push_back(value_of(runtime, item));
            return runtime.list(std::move(items));
        }
        case Json::value_t::object: {
            DictObject& dict = runtime.dict();
            for (const auto& [key, member] : json.items())
                set_entry(runtime, dict, value_of(runtime, Json(key)), value_of(runtime, member));
            return {Kind::dict, &dict};
        }
        default:
            return Value::none();
    }
}

/// The bytes of text that begins at a byte and has so many characters; it may end early.
Span span_of(std::string_view text, const Generated& generated) {
    std::size_t end = generated.begin;
    for (std::size_t i = 0; i < generated.characters && end < text.size(); ++i)
        end += std::max(1u, decode_utf8(text.substr(end)).length);
    return {generated.begin, end};
}

}  // namespace

Template::Template(std::string_view source, std::string name)
    : name_(std::move(name)), tree_(parse_template(source, name_)) {}

Rendered Template::render(std::span<const Variable> variables, std::chrono::system_clock::time_point now,
                          const Limits& limits) const {
    Runtime runtime(name_, limits, now);
    std::unordered_map<std::string, Value> context;
    for (const Named<Function>& global : global_functions()) {
        auto& function = runtime.make<FunctionObject>();
        function.function = global.function;
        context[std::string(global.name)] = {Kind::function, &function};
    }
    for (const auto& [key, value] : variables) context[key] = value_of(runtime, *value);
    Interpreter interpreter(runtime, limits, std::move(context));
    Rendered rendered;
    rendered.text = interpreter.run(tree_);
    for (const Generated& generated : interpreter.generated())
        rendered.generated.push_back(span_of(rendered.text, generated));
    return rendered;
}

}  // namespace drover::jinja
