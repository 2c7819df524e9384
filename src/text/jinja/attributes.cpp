#include "text/jinja/attributes.h"

#include <fmt/format.h>

#include <algorithm>

#include "text/jinja/characters.h"
#include "text/jinja/operations.h"

namespace drover::jinja {
namespace {

struct Method {
    std::string_view name;
    MethodFunction function;
};

MethodFunction find_method(std::span<const Method> methods, std::string_view name) {
    const auto found =
        std::find_if(methods.begin(), methods.end(), [&](const Method& m) { return m.name == name; });
    return found == methods.end() ? nullptr : found->function;
}

Value dict_items(Runtime& runtime, const Value& self, const Arguments& arguments) {
    expect_no_arguments(runtime, "dict.items", arguments);
    std::vector<Value> items;
    for (const auto& [key, value] : self.dict().entries) items.push_back(runtime.tuple({key, value}));
    return runtime.sequence(Kind::dict_items, std::move(items));
}

Value dict_keys(Runtime& runtime, const Value& self, const Arguments& arguments) {
    expect_no_arguments(runtime, "dict.keys", arguments);
    std::vector<Value> items;
    for (const auto& [key, value] : self.dict().entries) items.push_back(key);
    return runtime.sequence(Kind::dict_keys, std::move(items));
}

Value dict_values(Runtime& runtime, const Value& self, const Arguments& arguments) {
    expect_no_arguments(runtime, "dict.values", arguments);
    std::vector<Value> items;
    for (const auto& [key, value] : self.dict().entries) items.push_back(value);
    return runtime.sequence(Kind::dict_values, std::move(items));
}

Value dict_get(Runtime& runtime, const Value& self, const Arguments& arguments) {
    if (!arguments.named.empty()) wrong_arguments(runtime, "dict.get");
    const auto [key, otherwise] = bound<2>(runtime, "dict.get", arguments, {"key", "default"}, 1);
    if (!is_hashable(key)) runtime.fail(fmt::format("unhashable type: '{}'", type_name(key)));
    const Value* found = find_entry(runtime, self.dict(), key);
    return found ? *found : otherwise.is_missing() ? Value::none() : otherwise;
}

Value dict_copy(Runtime& runtime, const Value& self, const Arguments& arguments) {
    expect_no_arguments(runtime, "dict.copy", arguments);
    DictObject& copy = runtime.dict();
    for (const auto& [key, value] : self.dict().entries) set_entry(runtime, copy, key, value);
    return {Kind::dict, &copy};
}

constexpr Method dict_methods[] = {
    {"items", dict_items}, {"keys", dict_keys}, {"values", dict_values},
    {"get", dict_get},     {"copy", dict_copy},
};

Value sequence_index(Runtime& runtime, const Value& self, const Arguments& arguments) {
    const auto [wanted, start, stop] = bound<3>(runtime, "index", arguments, {"value", "start", "stop"}, 1);
    const std::vector<Value>& items = self.sequence().items;
    const auto size = static_cast<std::int64_t>(items.size());
    const auto place = [&](const Value& bound, std::int64_t otherwise) {
        if (bound.is_missing()) return otherwise;
        const std::int64_t at = expect_integer(runtime, bound, "index");
        return std::clamp(at < 0 ? at + size : at, std::int64_t{0}, size);
    };
    const std::int64_t end = place(stop, size);
    for (std::int64_t i = place(start, 0); i < end; ++i)
        if (equal(runtime, items[static_cast<std::size_t>(i)], wanted)) return Value::integer(i);
    runtime.fail(fmt::format("{} is not in {}", representation(runtime, wanted), type_name(self)));
}

Value sequence_count(Runtime& runtime, const Value& self, const Arguments& arguments) {
    const auto [wanted] = bound<1>(runtime, "count", arguments, {"value"}, 1);
    std::int64_t count = 0;
    for (const Value& value : self.sequence().items) count += equal(runtime, value, wanted) ? 1 : 0;
    return Value::integer(count);
}

Value list_copy(Runtime& runtime, const Value& self, const Arguments& arguments) {
    expect_no_arguments(runtime, "list.copy", arguments);
    return runtime.list(self.sequence().items);
}

constexpr Method sequence_methods[] = {{"index", sequence_index}, {"count", sequence_count}};
constexpr Method list_methods[] = {{"copy", list_copy}};

Value cycler_next(Runtime& runtime, const Value& self, const Arguments& arguments) {
    expect_no_arguments(runtime, "next", arguments);
    auto& cycler = self.as<CyclerObject>();
    const Value current = cycler.items[cycler.position];
    cycler.position = (cycler.position + 1) % cycler.items.size();
    return current;
}

Value cycler_reset(Runtime& runtime, const Value& self, const Arguments& arguments) {
    expect_no_arguments(runtime, "reset", arguments);
    self.as<CyclerObject>().position = 0;
    return Value::none();
}

constexpr Method cycler_methods[] = {{"next", cycler_next}, {"reset", cycler_reset}};

/// Names that every object of Python has, which the sandbox hides.
bool is_internal(std::string_view name) {
    return name.size() > 4 && name.starts_with("__") && name.ends_with("__");
}

/// Methods that change a list or a dict, which transformers' sandbox forbids.
bool changes(const Value& value, std::string_view name) {
    constexpr std::string_view of_list[] = {"append", "clear", "pop",    "reverse",
                                            "insert", "sort",  "extend", "remove"};
    constexpr std::string_view of_dict[] = {"clear", "pop", "popitem", "setdefault", "update"};
    const auto among = [&](std::span<const std::string_view> names) {
        return std::find(names.begin(), names.end(), name) != names.end();
    };
    return value.is(Kind::list) ? among(of_list) : value.is_dict() && among(of_dict);
}

/// getattr(value, name); missing if Python has none.
Value python_attribute(Runtime& runtime, const Value& value, std::string_view name) {
    if ((is_internal(name) && !value.is(Kind::name_space)) || changes(value, name))
        return runtime.undefined(
            fmt::format("access to attribute '{}' of '{}' object is unsafe", name, type_name(value)));
    MethodFunction method = nullptr;
    switch (value.kind()) {
        case Kind::name_space: {
            const Value* found = value.as<NamespaceObject>().attributes->find(name);
            return found ? *found : Value();
        }
        case Kind::text:
            method = text_method(name);
            if (!method && (name == "encode" || name == "translate" || name == "maketrans" ||
                            name == "format_map" || name == "expandtabs"))
                runtime.fail(fmt::format("str.{} is not supported", name));
            break;
        case Kind::dict:
            method = find_method(dict_methods, name);
            if (!method && name == "fromkeys") runtime.fail("dict.fromkeys is not supported");
            break;
        case Kind::list:
            method = find_method(list_methods, name);
            [[fallthrough]];
        case Kind::tuple:
        case Kind::range:
            if (value.sequence().group && (name == "grouper" || name == "list"))
                return value.sequence().items[name == "list" ? 1 : 0];
            if (!method) method = find_method(sequence_methods, name);
            break;
        case Kind::cycler:
            if (name == "current") {
                const auto& cycler = value.as<CyclerObject>();
                return cycler.items[cycler.position];
            }
            method = find_method(cycler_methods, name);
            break;
        case Kind::loop:
        case Kind::macro:
            return value.as<ActiveObject>().field(runtime, value, name);
        default:
            break;
    }
    if (!method) return {};
    auto& object = runtime.make<MethodObject>();
    object.self = value;
    object.function = method;
    return {Kind::method, &object};
}

/// value[key]; missing where Python raises a LookupError or a TypeError.
Value python_item(Runtime& runtime, const Value& value, const Value& key) {
    if (value.is_dict()) {
        const Value* found = is_hashable(key) ? find_entry(runtime, value.dict(), key) : nullptr;
        return found ? *found : Value();
    }
    const bool indexed =
        value.is_text() || value.is(Kind::list) || value.is(Kind::tuple) || value.is(Kind::range);
    if (!indexed || !key.is_whole()) return {};
    const auto size = static_cast<std::int64_t>(*length_if_any(value));
    const std::int64_t at = key.whole() < 0 ? key.whole() + size : key.whole();
    if (at < 0 || at >= size) return {};
    const auto index = static_cast<std::size_t>(at);
    if (!value.is_text()) return value.sequence().items[index];
    const std::string& text = value.text();
    if (text.size() == static_cast<std::size_t>(size)) return runtime.text(std::string(1, text[index]));
    runtime.step(text.size() / 16);
    const std::vector<std::size_t> offsets = character_offsets(text);
    return runtime.text(text.substr(offsets[index], offsets[index + 1] - offsets[index]));
}

Value no_such(Runtime& runtime, const Value& value, const Value& key) {
    if (key.is_text())
        return runtime.undefined(
            fmt::format("'{}' has no attribute {}", object_name(value), python_quoted(key.text())));
    return runtime.undefined(
        fmt::format("{} has no element {}", object_name(value), representation(runtime, key)));
}

}  // namespace

Value attribute(Runtime& runtime, const Value& value, std::string_view name) {
    runtime.step();
    expect_defined(runtime, value);
    const Value found = python_attribute(runtime, value, name);
    if (!found.is_missing()) return found;
    if (value.is_dict())
        if (const Value* entry = value.dict().find(name)) return *entry;
    return runtime.undefined(fmt::format("'{}' has no attribute '{}'", object_name(value), name));
}

Value item(Runtime& runtime, const Value& value, const Value& key) {
    runtime.step();
    expect_defined(runtime, value);
    const Value found = python_item(runtime, value, key);
    if (!found.is_missing()) return found;
    if (key.is_text()) {
        const Value field = python_attribute(runtime, value, key.text());
        if (!field.is_missing()) return field;
    }
    return no_such(runtime, value, key);
}

}  // namespace drover::jinja
