// Jinja's filters of lists, dicts and other things that can be gone through.
#include <fmt/format.h>

#include <algorithm>

#include "text/jinja/attributes.h"
#include "text/jinja/builtins.h"
#include "text/jinja/characters.h"
#include "text/jinja/operations.h"

namespace drover::jinja {
namespace {

/// item.a.b for the attribute "a.b", as the filters with an argument "attribute" read it.
class AttributePath {
  public:
    AttributePath(Runtime& runtime, const Value& path, const Value& otherwise = {})
        : runtime_(runtime), otherwise_(otherwise) {
        if (path.is_missing() || path.is_none()) return;
        if (!path.is_text()) {
            parts_.push_back(path);
            return;
        }
        for (std::string_view rest = path.text();;) {
            const std::size_t dot = rest.find('.');
            const std::string_view part = rest.substr(0, dot);
            parts_.push_back(part_value(part));
            if (dot == std::string_view::npos) break;
            rest = rest.substr(dot + 1);
        }
    }

    Value of(Value value) const {
        for (const Value& part : parts_) {
            value = item(runtime_, value, part);
            if (value.is_undefined() && !otherwise_.is_missing() && !otherwise_.is_none()) value = otherwise_;
        }
        return value;
    }

  private:
    Value part_value(std::string_view part) {
        if (!all_digits(part) || part.size() > 9) return runtime_.text(std::string(part));
        std::int64_t index = 0;
        for (const char c : part) index = index * 10 + (c - '0');
        return Value::integer(index);
    }

    Runtime& runtime_;
    Value otherwise_;
    std::vector<Value> parts_;
};

Value without_case(Runtime& runtime, const Value& value) {
    return value.is_text() ? runtime.text(small_case(value.text())) : value;
}

bool less(Runtime& runtime, const Value& left, const Value& right) {
    return ordered(runtime, left, right, Order::less);
}

std::vector<Value> copied(std::span<const Value> items) {
    return {items.begin(), items.end()};
}

Value filter_length(Runtime& runtime, const Value& value, const Arguments& arguments) {
    expect_no_arguments(runtime, "length", arguments);
    return Value::integer(static_cast<std::int64_t>(length(runtime, value)));
}

Value filter_first(Runtime& runtime, const Value& value, const Arguments& arguments) {
    expect_no_arguments(runtime, "first", arguments);
    if (value.is(Kind::iterator)) {
        auto& iterator = value.as<IteratorObject>();
        if (iterator.next < iterator.items.size()) return iterator.items[iterator.next++];
        return runtime.undefined("No first item, sequence was empty");
    }
    const auto items = items_of(runtime, value);
    return items.empty() ? runtime.undefined("No first item, sequence was empty") : items.front();
}

Value filter_last(Runtime& runtime, const Value& value, const Arguments& arguments) {
    expect_no_arguments(runtime, "last", arguments);
    if (value.is(Kind::iterator))
        runtime.fail(fmt::format("'{}' object is not reversible", type_name(value)));
    const auto items = items_of(runtime, value);
    return items.empty() ? runtime.undefined("No last item, sequence was empty") : items.back();
}

Value filter_list(Runtime& runtime, const Value& value, const Arguments& arguments) {
    expect_no_arguments(runtime, "list", arguments);
    return runtime.list(copied(items_of(runtime, value)));
}

Value filter_items(Runtime& runtime, const Value& value, const Arguments& arguments) {
    expect_no_arguments(runtime, "items", arguments);
    std::vector<Value> items;
    if (!value.is_undefined()) {
        if (!value.is_dict()) runtime.fail("Can only get item pairs from a mapping");
        for (const auto& [key, member] : value.dict().entries) items.push_back(runtime.tuple({key, member}));
    }
    return runtime.iterator(std::move(items));
}

Value filter_reverse(Runtime& runtime, const Value& value, const Arguments& arguments) {
    expect_no_arguments(runtime, "reverse", arguments);
    if (value.is_text()) return sliced(runtime, value, {}, {}, Value::integer(-1));
    if (!is_iterable(value)) runtime.fail("argument must be iterable");
    std::vector<Value> items = copied(items_of(runtime, value));
    std::reverse(items.begin(), items.end());
    return value.is(Kind::iterator) ? runtime.list(std::move(items)) : runtime.iterator(std::move(items));
}

Value filter_join(Runtime& runtime, const Value& value, const Arguments& arguments) {
    const auto [separator, path] = bound<2>(runtime, "join", arguments, {"d", "attribute"}, 0);
    const std::string between = separator.is_missing() ? "" : text_of(runtime, separator);
    const AttributePath attribute(runtime, path);
    std::string result;
    bool first = true;
    for (const Value& part : items_of(runtime, value)) {
        if (!first) result += between;
        first = false;
        result += text_of(runtime, attribute.of(part));
        runtime.step();
        runtime.expect_room(result.size());
    }
    return runtime.text(std::move(result));
}

Value filter_map(Runtime& runtime, const Value& value, const Arguments& arguments) {
    if (!truth(value)) return runtime.iterator({});  // also of none
    std::vector<Value> results;
    if (arguments.positional.empty()) {
        Value path, otherwise;
        for (const auto& [name, given] : arguments.named) {
            if (name != "attribute" && name != "default") wrong_arguments(runtime, "map");
            (name == "attribute" ? path : otherwise) = given;
        }
        if (path.is_missing()) runtime.fail("map requires a filter argument");
        const AttributePath attribute(runtime, path, otherwise);
        for (const Value& part : items_of(runtime, value)) results.push_back(attribute.of(part));
        return runtime.iterator(std::move(results));
    }
    const auto items = items_of(runtime, value);
    if (items.empty()) return runtime.iterator({});
    const std::string& name = expect_text(runtime, arguments.positional[0], "the filter of map");
    const Filter filter = find_filter(name);
    if (!filter) runtime.fail(fmt::format("No filter named {}", python_quoted(name)));
    const Runtime::Level level(runtime);
    Arguments rest = arguments;
    rest.positional.erase(rest.positional.begin());
    for (const Value& part : items) {
        runtime.step();
        results.push_back(filter(runtime, part, rest));
    }
    return runtime.iterator(std::move(results));
}

/// select, reject, selectattr and rejectattr.
template <bool wanted, bool by_attribute>
Value filter_select(Runtime& runtime, const Value& value, const Arguments& arguments) {
    if (!truth(value)) return runtime.iterator({});  // also of none
    Arguments rest = arguments;
    const auto take = [&] {
        const Value first = rest.positional.front();
        rest.positional.erase(rest.positional.begin());
        return first;
    };
    const auto items = items_of(runtime, value);
    if (items.empty()) return runtime.iterator({});
    Value path;
    if (by_attribute) {
        if (rest.positional.empty()) runtime.fail("Missing parameter for attribute name");
        path = take();
    }
    const AttributePath attribute(runtime, path);
    Test test = nullptr;
    if (!rest.positional.empty()) {
        const Value given = take();
        const std::string& name = expect_text(runtime, given, "the name of a test");
        test = find_test(name);
        if (!test) runtime.fail(fmt::format("No test named {}", python_quoted(name)));
    }
    std::vector<Value> results;
    for (const Value& part : items) {
        runtime.step();
        const Value subject = attribute.of(part);
        if ((test ? test(runtime, subject, rest) : truth(subject)) == wanted) results.push_back(part);
    }
    return runtime.iterator(std::move(results));
}

/// Sorts by key, keeping the order of equal ones, as Python's sorted().
std::vector<Value> sorted(Runtime& runtime, std::vector<std::pair<Value, Value>> keyed, bool reverse) {
    std::stable_sort(keyed.begin(), keyed.end(), [&](const auto& a, const auto& b) {
        return reverse ? less(runtime, b.first, a.first) : less(runtime, a.first, b.first);
    });
    std::vector<Value> results;
    for (const auto& [key, value] : keyed) results.push_back(value);
    return results;
}

Value filter_dictsort(Runtime& runtime, const Value& value, const Arguments& arguments) {
    const auto [case_sensitive, by, reverse] =
        bound<3>(runtime, "dictsort", arguments, {"case_sensitive", "by", "reverse"}, 0);
    const std::string which = by.is_missing() ? "key" : expect_text(runtime, by, "the argument \"by\"");
    if (which != "key" && which != "value") runtime.fail("You can only sort by either \"key\" or \"value\"");
    expect_defined(runtime, value);
    if (!value.is_dict()) runtime.fail(fmt::format("'{}' object has no attribute 'items'", type_name(value)));
    std::vector<std::pair<Value, Value>> keyed;
    for (const auto& [key, member] : value.dict().entries) {
        const Value sort_key = which == "key" ? key : member;
        keyed.emplace_back(truth(case_sensitive) ? sort_key : without_case(runtime, sort_key),
                           runtime.tuple({key, member}));
    }
    return runtime.list(sorted(runtime, std::move(keyed), truth(reverse)));
}

Value filter_sort(Runtime& runtime, const Value& value, const Arguments& arguments) {
    const auto [reverse, case_sensitive, path] =
        bound<3>(runtime, "sort", arguments, {"reverse", "case_sensitive", "attribute"}, 0);
    std::vector<AttributePath> paths;
    if (path.is_text())
        for (std::string_view rest = path.text();;) {
            const std::size_t comma = rest.find(',');
            paths.emplace_back(runtime, runtime.text(std::string(rest.substr(0, comma))));
            if (comma == std::string_view::npos) break;
            rest = rest.substr(comma + 1);
        }
    else
        paths.emplace_back(runtime, path);
    std::vector<std::pair<Value, Value>> keyed;
    for (const Value& part : items_of(runtime, value)) {
        std::vector<Value> keys;
        for (const AttributePath& attribute : paths) {
            const Value key = attribute.of(part);
            keys.push_back(truth(case_sensitive) ? key : without_case(runtime, key));
        }
        keyed.emplace_back(runtime.list(std::move(keys)), part);
    }
    return runtime.list(sorted(runtime, std::move(keyed), truth(reverse)));
}

Value filter_unique(Runtime& runtime, const Value& value, const Arguments& arguments) {
    const auto [case_sensitive, path] =
        bound<2>(runtime, "unique", arguments, {"case_sensitive", "attribute"}, 0);
    const AttributePath attribute(runtime, path);
    DictObject& seen = runtime.dict();
    std::vector<Value> results;
    for (const Value& part : items_of(runtime, value)) {
        const Value found = attribute.of(part);
        const Value key = truth(case_sensitive) ? found : without_case(runtime, found);
        if (!is_hashable(key)) runtime.fail(fmt::format("unhashable type: '{}'", type_name(key)));
        if (find_entry(runtime, seen, key)) continue;
        set_entry(runtime, seen, key, Value::none());
        results.push_back(part);
    }
    return runtime.iterator(std::move(results));
}

template <bool largest>
Value filter_extreme(Runtime& runtime, const Value& value, const Arguments& arguments) {
    const auto [case_sensitive, path] =
        bound<2>(runtime, largest ? "max" : "min", arguments, {"case_sensitive", "attribute"}, 0);
    const AttributePath attribute(runtime, path);
    Value best, best_key;
    for (const Value& part : items_of(runtime, value)) {
        const Value found = attribute.of(part);
        const Value key = truth(case_sensitive) ? found : without_case(runtime, found);
        if (best.is_missing() || (largest ? less(runtime, best_key, key) : less(runtime, key, best_key))) {
            best = part;
            best_key = key;
        }
    }
    return best.is_missing() ? runtime.undefined("No aggregated item, sequence was empty") : best;
}

Value filter_sum(Runtime& runtime, const Value& value, const Arguments& arguments) {
    const auto [path, start] = bound<2>(runtime, "sum", arguments, {"attribute", "start"}, 0);
    const AttributePath attribute(runtime, path);
    Value total = start.is_missing() ? Value::integer(0) : start;
    if (total.is_text()) runtime.fail("sum() can't sum strings");
    for (const Value& part : items_of(runtime, value))
        total = arithmetic(runtime, Arithmetic::add, total, attribute.of(part));
    return total;
}

Value filter_batch(Runtime& runtime, const Value& value, const Arguments& arguments) {
    const auto [count, fill] = bound<2>(runtime, "batch", arguments, {"linecount", "fill_with"}, 1);
    const std::int64_t size = expect_integer(runtime, count, "the size of a batch");
    if (size < 1 || size > 1'000'000) runtime.fail("batch wants a size from 1 to 1,000,000");
    const auto items = items_of(runtime, value);
    std::vector<Value> batches;
    const auto wanted = static_cast<std::size_t>(size);
    for (std::size_t at = 0; at < items.size(); at += wanted) {
        std::vector<Value> batch = copied(items.subspan(at, std::min(wanted, items.size() - at)));
        if (!fill.is_missing() && !fill.is_none()) batch.resize(wanted, fill);
        batches.push_back(runtime.list(std::move(batch)));
    }
    return runtime.iterator(std::move(batches));
}

Value filter_slice(Runtime& runtime, const Value& value, const Arguments& arguments) {
    const auto [count, fill] = bound<2>(runtime, "slice", arguments, {"slices", "fill_with"}, 1);
    const std::int64_t slices = expect_integer(runtime, count, "the number of slices");
    if (slices < 1 || slices > 1'000'000) runtime.fail("slice wants a number from 1 to 1,000,000");
    const auto items = items_of(runtime, value);
    const auto parts = static_cast<std::size_t>(slices);
    const std::size_t each = items.size() / parts, longer = items.size() % parts;
    std::vector<Value> results;
    std::size_t at = 0;
    for (std::size_t i = 0; i < parts; ++i) {
        const std::size_t size = each + (i < longer ? 1 : 0);
        std::vector<Value> slice = copied(items.subspan(at, size));
        at += size;
        if (!fill.is_missing() && !fill.is_none() && i >= longer) slice.push_back(fill);
        results.push_back(runtime.list(std::move(slice)));
    }
    return runtime.iterator(std::move(results));
}

Value filter_groupby(Runtime& runtime, const Value& value, const Arguments& arguments) {
    const auto [path, otherwise, case_sensitive] =
        bound<3>(runtime, "groupby", arguments, {"attribute", "default", "case_sensitive"}, 1);
    const AttributePath attribute(runtime, path, otherwise);
    const bool keep_case = truth(case_sensitive);
    const auto key_of = [&](const Value& part) {
        const Value found = attribute.of(part);
        return keep_case ? found : without_case(runtime, found);
    };
    std::vector<std::pair<Value, Value>> keyed;
    for (const Value& part : items_of(runtime, value)) keyed.emplace_back(key_of(part), part);
    const std::vector<Value> parts = sorted(runtime, std::move(keyed), false);
    std::vector<Value> groups;
    for (std::size_t begin = 0; begin < parts.size();) {
        const Value key = key_of(parts[begin]);
        std::size_t end = begin + 1;
        while (end < parts.size() && equal(runtime, key_of(parts[end]), key)) ++end;
        const Value members = runtime.list({parts.begin() + static_cast<std::ptrdiff_t>(begin),
                                            parts.begin() + static_cast<std::ptrdiff_t>(end)});
        const Value group = runtime.tuple({attribute.of(parts[begin]), members});
        group.as<SequenceObject>().group = true;
        groups.push_back(group);
        begin = end;
    }
    return runtime.list(std::move(groups));
}

}  // namespace

std::vector<Named<Filter>> sequence_filters() {
    return {
        {"batch", filter_batch},
        {"count", filter_length},
        {"dictsort", filter_dictsort},
        {"first", filter_first},
        {"groupby", filter_groupby},
        {"items", filter_items},
        {"join", filter_join},
        {"last", filter_last},
        {"length", filter_length},
        {"list", filter_list},
        {"map", filter_map},
        {"max", filter_extreme<true>},
        {"min", filter_extreme<false>},
        {"reject", filter_select<false, false>},
        {"rejectattr", filter_select<false, true>},
        {"reverse", filter_reverse},
        {"select", filter_select<true, false>},
        {"selectattr", filter_select<true, true>},
        {"slice", filter_slice},
        {"sort", filter_sort},
        {"sum", filter_sum},
        {"unique", filter_unique},
    };
}

}  // namespace drover::jinja
