#include "text/jinja/operations.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/python_text.h"
#include "text/jinja/attributes.h"
#include "text/jinja/characters.h"

namespace drover::jinja {
namespace {

/// −1, 0, 1, and 2 where one is not a number. Exact: a long double holds every integer and every double.
int compare_numbers(const Value& left, const Value& right) {
    const auto exact = [](const Value& value) {
        return value.is_whole() ? static_cast<long double>(value.whole())
                                : static_cast<long double>(value.number());
    };
    const long double a = exact(left), b = exact(right);
    if (std::isnan(a) || std::isnan(b)) return 2;
    return a < b ? -1 : a > b ? 1 : 0;
}

bool in_order(int comparison, Order order) {
    if (comparison == 2) return false;
    switch (order) {
        case Order::less:
            return comparison < 0;
        case Order::less_or_equal:
            return comparison <= 0;
        case Order::greater:
            return comparison > 0;
        default:
            return comparison >= 0;
    }
}

std::string_view sign_of(Order order) {
    switch (order) {
        case Order::less:
            return "<";
        case Order::less_or_equal:
            return "<=";
        case Order::greater:
            return ">";
        default:
            return ">=";
    }
}

bool equal_items(Runtime& runtime, const std::vector<Value>& left, const std::vector<Value>& right) {
    return left.size() == right.size() &&
           std::equal(left.begin(), left.end(), right.begin(),
                      [&](const Value& a, const Value& b) { return equal(runtime, a, b); });
}

bool equal_dicts(Runtime& runtime, const DictObject& left, const DictObject& right) {
    if (left.entries.size() != right.entries.size()) return false;
    for (const auto& [key, value] : left.entries) {
        const Value* other = find_entry(runtime, right, key);
        if (!other || !equal(runtime, value, *other)) return false;
    }
    return true;
}

std::string joined_representations(Runtime& runtime, std::span<const Value> items) {
    std::string result;
    for (const Value& item : items) {
        if (!result.empty()) result += ", ";
        result += representation(runtime, item);
        runtime.expect_room(result.size());
    }
    return result;
}

std::string dict_representation(Runtime& runtime, const DictObject& dict) {
    std::string result = "{";
    for (const auto& [key, value] : dict.entries) {
        if (result.size() > 1) result += ", ";
        result += representation(runtime, key);
        result += ": ";
        result += representation(runtime, value);
        runtime.expect_room(result.size());
    }
    return result + "}";
}

}  // namespace

std::string_view type_name(const Value& value) {
    switch (value.kind()) {
        case Kind::missing:
        case Kind::undefined:
            return "Undefined";
        case Kind::none:
            return "NoneType";
        case Kind::boolean:
            return "bool";
        case Kind::integer:
            return "int";
        case Kind::real:
            return "float";
        case Kind::text:
            return "str";
        case Kind::list:
            return "list";
        case Kind::tuple:
            return "tuple";
        case Kind::dict:
            return "dict";
        case Kind::dict_items:
            return "dict_items";
        case Kind::dict_keys:
            return "dict_keys";
        case Kind::dict_values:
            return "dict_values";
        case Kind::range:
            return "range";
        case Kind::iterator:
            return "generator";
        case Kind::name_space:
            return "Namespace";
        case Kind::macro:
            return "Macro";
        case Kind::function:
            return "function";
        case Kind::method:
            return "method";
        case Kind::loop:
            return "LoopContext";
        case Kind::cycler:
            return "Cycler";
        case Kind::joiner:
            return "Joiner";
    }
    return "object";
}

std::string object_name(const Value& value) {
    return value.is_none() ? "None" : fmt::format("{} object", type_name(value));
}

bool is_list_or_tuple(const Value& value) {
    return value.is(Kind::list) || value.is(Kind::tuple);
}

bool truth(const Value& value) {
    switch (value.kind()) {
        case Kind::missing:
        case Kind::undefined:
        case Kind::none:
            return false;
        case Kind::boolean:
        case Kind::integer:
            return value.whole() != 0;
        case Kind::real:
            return value.number() != 0;
        default:
            return length_if_any(value).value_or(1) != 0;
    }
}

bool same(const Value& left, const Value& right) {
    if (left.kind() != right.kind()) return false;
    switch (left.kind()) {
        case Kind::missing:
        case Kind::none:
            return true;
        case Kind::boolean:
        case Kind::integer:
            return left.whole() == right.whole();
        case Kind::real:
            return left.number() == right.number();
        case Kind::text:  // equal texts are often one object in Python, and templates rely on neither
            return left.text() == right.text();
        default:
            return left.object() == right.object();
    }
}

bool equal(Runtime& runtime, const Value& left, const Value& right) {
    runtime.step();
    const Runtime::Level level(runtime);
    if (left.is_number() && right.is_number()) return compare_numbers(left, right) == 0;
    if (left.kind() != right.kind()) return false;
    switch (left.kind()) {
        case Kind::missing:
        case Kind::undefined:
        case Kind::none:
            return true;
        case Kind::text:
            runtime.step(left.text().size() / 64);
            return left.text() == right.text();
        case Kind::list:
        case Kind::tuple:
        case Kind::range:
        case Kind::dict_keys:
        case Kind::dict_items:
            return equal_items(runtime, left.sequence().items, right.sequence().items);
        case Kind::dict:
            return equal_dicts(runtime, left.dict(), right.dict());
        default:
            return left.object() == right.object();
    }
}

bool ordered(Runtime& runtime, const Value& left, const Value& right, Order order) {
    runtime.step();
    const Runtime::Level level(runtime);
    expect_defined(runtime, left);
    expect_defined(runtime, right);
    if (left.is_number() && right.is_number()) return in_order(compare_numbers(left, right), order);
    if (left.is_text() && right.is_text()) {
        runtime.step(std::min(left.text().size(), right.text().size()) / 64);
        return in_order(left.text().compare(right.text()) < 0   ? -1
                        : left.text().compare(right.text()) > 0 ? 1
                                                                : 0,
                        order);
    }
    if (left.kind() == right.kind() && is_list_or_tuple(left)) {
        const auto& a = left.sequence().items;
        const auto& b = right.sequence().items;
        for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i)
            if (!equal(runtime, a[i], b[i])) return ordered(runtime, a[i], b[i], order);
        return in_order(a.size() < b.size() ? -1 : a.size() > b.size() ? 1 : 0, order);
    }
    runtime.fail(fmt::format("'{}' not supported between instances of '{}' and '{}'", sign_of(order),
                             type_name(left), type_name(right)));
}

bool contains(Runtime& runtime, const Value& container, const Value& item) {
    runtime.step();
    if (container.is_text()) {
        if (!item.is_text())
            runtime.fail(
                fmt::format("'in <string>' requires string as left operand, not {}", type_name(item)));
        runtime.search(container.text().size(), item.text().size());
        return container.text().find(item.text()) != std::string::npos;
    }
    if (container.is_dict()) {
        if (!is_hashable(item)) runtime.fail(fmt::format("unhashable type: '{}'", type_name(item)));
        return find_entry(runtime, container.dict(), item) != nullptr;
    }
    if (!is_iterable(container))
        runtime.fail(fmt::format("argument of type '{}' is not iterable", type_name(container)));
    if (container.is(Kind::iterator)) {  // used up only as far as the item
        auto& iterator = container.as<IteratorObject>();
        while (iterator.next < iterator.items.size())
            if (equal(runtime, iterator.items[iterator.next++], item)) return true;
        return false;
    }
    const std::span<const Value> items = items_of(runtime, container);
    return std::any_of(items.begin(), items.end(),
                       [&](const Value& value) { return equal(runtime, value, item); });
}

std::optional<std::size_t> length_if_any(const Value& value) {
    if (value.is_undefined()) return 0;
    if (value.is_text()) return value.as<TextObject>().characters;
    if (value.is_dict()) return value.dict().entries.size();
    if (value.is_sequence()) return value.sequence().items.size();
    return std::nullopt;
}

std::size_t length(Runtime& runtime, const Value& value) {
    const std::optional<std::size_t> length = length_if_any(value);
    if (!length) runtime.fail(fmt::format("object of type '{}' has no len()", type_name(value)));
    return *length;
}

bool is_iterable(const Value& value) {
    return length_if_any(value).has_value() || value.is(Kind::iterator);
}

std::span<const Value> items_of(Runtime& runtime, const Value& value) {
    if (value.is_undefined()) return {};
    if (value.is_sequence()) return value.sequence().items;
    if (value.is(Kind::iterator)) {
        auto& iterator = value.as<IteratorObject>();
        const std::size_t begin = std::exchange(iterator.next, iterator.items.size());
        return std::span<const Value>(iterator.items).subspan(begin);
    }
    std::vector<Value> items;
    if (value.is_dict()) {
        for (const auto& [key, member] : value.dict().entries) items.push_back(key);
    } else if (value.is_text()) {
        const std::vector<std::size_t> offsets = character_offsets(value.text());
        runtime.expect_room(offsets.size() * sizeof(TextObject));
        for (std::size_t i = 0; i + 1 < offsets.size(); ++i)
            items.push_back(
                runtime.text(value.text().substr(offsets[i], offsets[i + 1] - offsets[i]), false));
    } else {
        runtime.fail(fmt::format("'{}' object is not iterable", type_name(value)));
    }
    return runtime.list(std::move(items)).sequence().items;
}

std::string text_of(Runtime& runtime, const Value& value) {
    if (value.is_text()) return value.text();
    return value.is_undefined() ? std::string() : representation(runtime, value);
}

Value as_text(Runtime& runtime, const Value& value) {
    return value.is_text() ? value : runtime.text(text_of(runtime, value));
}

std::string representation(Runtime& runtime, const Value& value) {
    runtime.step();
    const Runtime::Level level(runtime);
    switch (value.kind()) {
        case Kind::missing:
        case Kind::undefined:
            return "Undefined";
        case Kind::none:
            return "None";
        case Kind::boolean:
            return value.as_bool() ? "True" : "False";
        case Kind::integer:
            return std::to_string(value.whole());
        case Kind::real:
            return python_float(value.number());
        case Kind::text: {
            runtime.step(value.text().size() / 16);
            std::string text = python_quoted(value.text());
            return value.as<TextObject>().markup ? fmt::format("Markup({})", text) : text;
        }
        case Kind::list:
            return "[" + joined_representations(runtime, value.sequence().items) + "]";
        case Kind::tuple: {
            const bool single = value.sequence().items.size() == 1;
            return "(" + joined_representations(runtime, value.sequence().items) + (single ? ",)" : ")");
        }
        case Kind::dict:
            return dict_representation(runtime, value.dict());
        case Kind::dict_items:
        case Kind::dict_keys:
        case Kind::dict_values:
            return fmt::format("{}([{}])", type_name(value),
                               joined_representations(runtime, value.sequence().items));
        case Kind::range: {
            const auto& range = value.as<RangeObject>();
            if (range.step == 1) return fmt::format("range({}, {})", range.start, range.stop);
            return fmt::format("range({}, {}, {})", range.start, range.stop, range.step);
        }
        case Kind::name_space:
            return fmt::format("<Namespace {}>",
                               dict_representation(runtime, *value.as<NamespaceObject>().attributes));
        case Kind::loop:
        case Kind::macro:
            return value.as<ActiveObject>().shown();
        default:  // Python shows an address here
            return fmt::format("<{} object>", type_name(value));
    }
}

bool is_hashable(const Value& value) {
    if (value.is(Kind::tuple)) {
        const auto& items = value.sequence().items;
        return std::none_of(items.begin(), items.end(),
                            [](const Value& item) { return item.is(Kind::list) || item.is_dict(); });
    }
    return !value.is(Kind::list) && !value.is_dict() && !value.is(Kind::dict_items) &&
           !value.is(Kind::dict_keys);
}

namespace {

std::size_t entry_position(Runtime& runtime, const DictObject& dict, const Value& key) {
    if (key.is_text()) {
        runtime.step(key.text().size() / 32);
        return dict.position(key.text());
    }
    runtime.step(dict.entries.size());
    for (std::size_t i = 0; i < dict.entries.size(); ++i)
        if (!dict.entries[i].first.is_text() && equal(runtime, dict.entries[i].first, key)) return i;
    return DictObject::nowhere;
}

}  // namespace

const Value* find_entry(Runtime& runtime, const DictObject& dict, const Value& key) {
    const std::size_t at = entry_position(runtime, dict, key);
    return at == DictObject::nowhere ? nullptr : &dict.entries[at].second;
}

void set_entry(Runtime& runtime, DictObject& dict, const Value& key, const Value& value) {
    if (!is_hashable(key)) runtime.fail(fmt::format("unhashable type: '{}'", type_name(key)));
    const std::size_t at = entry_position(runtime, dict, key);
    if (at != DictObject::nowhere) {
        dict.entries[at].second = value;
        return;
    }
    runtime.account(4 * sizeof(Value));
    dict.append(key, value);
}

Value sliced(Runtime& runtime, const Value& value, const Value& start, const Value& stop, const Value& step) {
    expect_defined(runtime, value);
    const bool text = value.is_text();
    if (!text && !is_list_or_tuple(value) && !value.is(Kind::range))
        runtime.fail(fmt::format("'{}' object cannot be sliced", type_name(value)));
    const auto part = [&](const Value& bound, std::int64_t otherwise) {
        if (bound.is_missing() || bound.is_none()) return otherwise;
        if (!bound.is_whole()) runtime.fail("slice indices must be integers or None");
        return bound.whole();
    };
    const std::int64_t by = part(step, 1);
    if (by == 0) runtime.fail("slice step cannot be zero");
    const auto size = static_cast<std::int64_t>(*length_if_any(value));
    // The rules of Python's slice.indices().
    const std::int64_t lowest = by < 0 ? -1 : 0, highest = by < 0 ? size - 1 : size;
    const auto clamped = [&](const Value& bound, std::int64_t otherwise) {
        std::int64_t at = part(bound, otherwise);
        if (bound.is_missing() || bound.is_none()) return otherwise;
        if (at < 0) at += size;
        return std::clamp(at, lowest, std::max(lowest, highest));
    };
    const std::int64_t from = clamped(start, by < 0 ? highest : lowest);
    const std::int64_t to = clamped(stop, by < 0 ? lowest : highest);

    std::vector<std::size_t> wanted;
    if (by > 0)
        for (std::int64_t i = from; i < to; i += std::min(by, size))
            wanted.push_back(static_cast<std::size_t>(i));
    else
        for (std::int64_t i = from; i > to; i += std::max(by, -size))
            wanted.push_back(static_cast<std::size_t>(i));
    runtime.step(wanted.size() / 8);

    if (text) {
        const std::string& bytes = value.text();
        const bool single_bytes = bytes.size() == static_cast<std::size_t>(size);
        if (!single_bytes) runtime.step(bytes.size() / 16);
        const std::vector<std::size_t> offsets =
            single_bytes ? std::vector<std::size_t>() : character_offsets(bytes);
        std::string result;
        for (const std::size_t i : wanted)
            if (single_bytes)
                result += bytes[i];
            else
                result.append(bytes, offsets[i], offsets[i + 1] - offsets[i]);
        return runtime.text(std::move(result), value.as<TextObject>().markup);
    }
    std::vector<Value> items;
    for (const std::size_t i : wanted) items.push_back(value.sequence().items[i]);
    return runtime.sequence(value.is(Kind::tuple) ? Kind::tuple : Kind::list, std::move(items));
}

Value html_escaped(Runtime& runtime, const Value& value) {
    if (value.is_text() && value.as<TextObject>().markup) return value;
    std::string result;
    for (const char c : text_of(runtime, value)) {
        if (c == '&')
            result += "&amp;";
        else if (c == '<')
            result += "&lt;";
        else if (c == '>')
            result += "&gt;";
        else if (c == '\'')
            result += "&#39;";
        else if (c == '"')
            result += "&#34;";
        else
            result += c;
    }
    return runtime.text(std::move(result), true);
}

void expect_defined(Runtime& runtime, const Value& value) {
    if (value.is_undefined()) runtime.fail(value.as<UndefinedObject>().message);
}

std::int64_t expect_integer(Runtime& runtime, const Value& value, std::string_view what) {
    if (!value.is_whole())
        runtime.fail(fmt::format("{} must be an integer, not '{}'", what, type_name(value)));
    return value.whole();
}

const std::string& expect_text(Runtime& runtime, const Value& value, std::string_view what) {
    expect_defined(runtime, value);
    if (!value.is_text()) runtime.fail(fmt::format("{} must be a text, not '{}'", what, type_name(value)));
    return value.text();
}

}  // namespace drover::jinja
