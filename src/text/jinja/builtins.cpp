// The tables of filters, tests and global functions, with the tests and the functions themselves.
#include "text/jinja/builtins.h"

#include <fmt/format.h>

#include <cctype>
#include <ctime>
#include <unordered_map>

#include "text/jinja/characters.h"
#include "text/jinja/operations.h"

namespace drover::jinja {
namespace {

template <class Kind>
using Table = std::unordered_map<std::string_view, Kind>;

/// For tests without arguments that only look at the value.
template <bool (*test)(const Value&)>
bool plain(Runtime& runtime, const Value& value, const Arguments& arguments) {
    expect_no_arguments(runtime, "this test", arguments);
    return test(value);
}

bool is_defined(const Value& value) {
    return !value.is_undefined();
}
bool is_undefined(const Value& value) {
    return value.is_undefined();
}
bool is_none(const Value& value) {
    return value.is_none();
}
bool is_boolean(const Value& value) {
    return value.is(Kind::boolean);
}
bool is_true(const Value& value) {
    return value.is(Kind::boolean) && value.as_bool();
}
bool is_false(const Value& value) {
    return value.is(Kind::boolean) && !value.as_bool();
}
bool is_integer(const Value& value) {
    return value.is(Kind::integer);
}
bool is_float(const Value& value) {
    return value.is(Kind::real);
}
bool is_number(const Value& value) {
    return value.is_number();
}
bool is_string(const Value& value) {
    return value.is_text();
}
bool is_mapping(const Value& value) {
    return value.is_dict();
}
bool can_be_iterated(const Value& value) {
    return is_iterable(value) || value.is(Kind::loop);
}
bool is_sequence(const Value& value) {
    // What has a length and items; Jinja takes an undefined value for a sequence.
    return value.is_undefined() || value.is_text() || value.is_dict() || value.is(Kind::list) ||
           value.is(Kind::tuple) || value.is(Kind::range);
}
bool is_callable(const Value& value) {
    return value.is(Kind::macro) || value.is(Kind::function) || value.is(Kind::method) ||
           value.is_undefined() || value.is(Kind::joiner) || value.is(Kind::loop);
}
bool is_escaped(const Value& value) {
    return value.is_text() && value.as<TextObject>().markup;
}

Value other_value(Runtime& runtime, const Arguments& arguments) {
    return bound<1>(runtime, "this test", arguments, {"other"}, 1)[0];
}

bool test_equal(Runtime& runtime, const Value& value, const Arguments& arguments) {
    return equal(runtime, value, other_value(runtime, arguments));
}
bool test_different(Runtime& runtime, const Value& value, const Arguments& arguments) {
    return !equal(runtime, value, other_value(runtime, arguments));
}
template <Order order>
bool test_order(Runtime& runtime, const Value& value, const Arguments& arguments) {
    return ordered(runtime, value, other_value(runtime, arguments), order);
}
bool test_in(Runtime& runtime, const Value& value, const Arguments& arguments) {
    return contains(runtime, other_value(runtime, arguments), value);
}
bool test_same(Runtime& runtime, const Value& value, const Arguments& arguments) {
    const Value other = other_value(runtime, arguments);
    if (value.is_text() && other.is_text()) runtime.step(value.text().size() / 64);
    return same(value, other);
}

bool remainder_is(Runtime& runtime, const Value& value, const Value& divisor, std::int64_t wanted) {
    return equal(runtime, arithmetic(runtime, Arithmetic::modulo, value, divisor), Value::integer(wanted));
}
bool test_divisible(Runtime& runtime, const Value& value, const Arguments& arguments) {
    return remainder_is(runtime, value, other_value(runtime, arguments), 0);
}
bool test_even(Runtime& runtime, const Value& value, const Arguments& arguments) {
    expect_no_arguments(runtime, "even", arguments);
    return remainder_is(runtime, value, Value::integer(2), 0);
}
bool test_odd(Runtime& runtime, const Value& value, const Arguments& arguments) {
    expect_no_arguments(runtime, "odd", arguments);
    return remainder_is(runtime, value, Value::integer(2), 1);
}
bool test_lower(Runtime& runtime, const Value& value, const Arguments& arguments) {
    expect_no_arguments(runtime, "lower", arguments);
    const std::string text = text_of(runtime, value);
    runtime.step(text.size() / 8);
    return is_lower(text);
}
bool test_upper(Runtime& runtime, const Value& value, const Arguments& arguments) {
    expect_no_arguments(runtime, "upper", arguments);
    const std::string text = text_of(runtime, value);
    runtime.step(text.size() / 8);
    return is_upper(text);
}
bool test_filter(Runtime& runtime, const Value& value, const Arguments& arguments) {
    expect_no_arguments(runtime, "filter", arguments);
    return value.is_text() && find_filter(value.text()) != nullptr;
}
bool test_test(Runtime& runtime, const Value& value, const Arguments& arguments) {
    expect_no_arguments(runtime, "test", arguments);
    return value.is_text() && find_test(value.text()) != nullptr;
}

const Table<Test>& tests() {
    static const Table<Test> table = {
        {"defined", plain<is_defined>},
        {"undefined", plain<is_undefined>},
        {"none", plain<is_none>},
        {"boolean", plain<is_boolean>},
        {"true", plain<is_true>},
        {"false", plain<is_false>},
        {"integer", plain<is_integer>},
        {"float", plain<is_float>},
        {"number", plain<is_number>},
        {"string", plain<is_string>},
        {"mapping", plain<is_mapping>},
        {"iterable", plain<can_be_iterated>},
        {"sequence", plain<is_sequence>},
        {"callable", plain<is_callable>},
        {"escaped", plain<is_escaped>},
        {"==", test_equal},
        {"eq", test_equal},
        {"equalto", test_equal},
        {"!=", test_different},
        {"ne", test_different},
        {"<", test_order<Order::less>},
        {"lt", test_order<Order::less>},
        {"lessthan", test_order<Order::less>},
        {"<=", test_order<Order::less_or_equal>},
        {"le", test_order<Order::less_or_equal>},
        {">", test_order<Order::greater>},
        {"gt", test_order<Order::greater>},
        {"greaterthan", test_order<Order::greater>},
        {">=", test_order<Order::greater_or_equal>},
        {"ge", test_order<Order::greater_or_equal>},
        {"in", test_in},
        {"sameas", test_same},
        {"divisibleby", test_divisible},
        {"even", test_even},
        {"odd", test_odd},
        {"lower", test_lower},
        {"upper", test_upper},
        {"filter", test_filter},
        {"test", test_test},
    };
    return table;
}

const Table<Filter>& filters() {
    static const Table<Filter> table = [] {
        Table<Filter> all;
        for (const auto& part : {text_filters(), sequence_filters()})
            for (const Named<Filter>& filter : part) all.emplace(filter.name, filter.function);
        return all;
    }();
    return table;
}

/// transformers' sandbox allows no longer ones.
constexpr std::uint64_t longest_range = 100'000;

Value make_range(Runtime& runtime, const Arguments& arguments) {
    const auto [first, second, third] = bound<3>(runtime, "range", arguments, {"start", "stop", "step"}, 1);
    const bool only_stop = second.is_missing();
    const std::int64_t start = only_stop ? 0 : expect_integer(runtime, first, "the start of a range");
    const std::int64_t stop = expect_integer(runtime, only_stop ? first : second, "the end of a range");
    const std::int64_t step = third.is_missing() ? 1 : expect_integer(runtime, third, "the step of a range");
    if (step == 0) runtime.fail("range() arg 3 must not be zero");
    const auto bits = [](std::int64_t value) { return static_cast<std::uint64_t>(value); };
    const std::uint64_t stride = step > 0 ? bits(step) : std::uint64_t{0} - bits(step);
    std::uint64_t distance = 0;  // may exceed 63 bits
    if (step > 0 ? stop > start : stop < start)
        distance = step > 0 ? bits(stop) - bits(start) : bits(start) - bits(stop);
    const std::uint64_t count = distance == 0 ? 0 : (distance - 1) / stride + 1;
    if (count > longest_range)
        runtime.fail("Range too big. The sandbox blocks ranges larger than MAX_RANGE (100000)");
    auto& range = runtime.make<RangeObject>(count * sizeof(Value));
    range.start = start;
    range.stop = stop;
    range.step = step;
    for (std::int64_t i = 0; i < static_cast<std::int64_t>(count); ++i)
        range.items.push_back(Value::integer(start + i * step));
    return {Kind::range, &range};
}

DictObject& dict_from(Runtime& runtime, std::string_view what, const Arguments& arguments) {
    DictObject& dict = runtime.dict();
    if (arguments.positional.size() > 1) wrong_arguments(runtime, what);
    for (const Value& source : arguments.positional) {
        if (source.is_dict()) {
            for (const auto& [key, value] : source.dict().entries) set_entry(runtime, dict, key, value);
            continue;
        }
        for (const Value& pair : items_of(runtime, source)) {
            const auto parts = items_of(runtime, pair);
            if (parts.size() != 2) runtime.fail("dictionary update sequence element must have length 2");
            set_entry(runtime, dict, parts[0], parts[1]);
        }
    }
    for (const auto& [name, value] : arguments.named) set_entry(runtime, dict, runtime.text(name), value);
    return dict;
}

Value make_dict(Runtime& runtime, const Arguments& arguments) {
    return {Kind::dict, &dict_from(runtime, "dict", arguments)};
}

Value make_namespace(Runtime& runtime, const Arguments& arguments) {
    auto& space = runtime.make<NamespaceObject>();
    space.attributes = &dict_from(runtime, "namespace", arguments);
    return {Kind::name_space, &space};
}

Value make_cycler(Runtime& runtime, const Arguments& arguments) {
    if (arguments.positional.empty() || !arguments.named.empty())
        runtime.fail("at least one item has to be provided");
    auto& cycler = runtime.make<CyclerObject>(arguments.positional.size() * sizeof(Value));
    cycler.items = arguments.positional;
    return {Kind::cycler, &cycler};
}

Value make_joiner(Runtime& runtime, const Arguments& arguments) {
    const auto [separator] = bound<1>(runtime, "joiner", arguments, {"sep"}, 0);
    auto& joiner = runtime.make<JoinerObject>();
    joiner.separator = separator.is_missing() ? runtime.text(", ") : separator;
    return {Kind::joiner, &joiner};
}

Value raise_exception(Runtime& runtime, const Arguments& arguments) {
    const auto [message] = bound<1>(runtime, "raise_exception", arguments, {"message"}, 1);
    runtime.refuse(text_of(runtime, message));
}

Value strftime_now(Runtime& runtime, const Arguments& arguments) {
    const auto [given] = bound<1>(runtime, "strftime_now", arguments, {"format"}, 1);
    const std::string& wanted = expect_text(runtime, given, "the format of strftime_now");
    if (wanted.size() > 1000) runtime.fail("the format of strftime_now is too long");
    const std::time_t seconds = std::chrono::system_clock::to_time_t(runtime.now());
    std::tm local{};
    localtime_r(&seconds, &local);
    // Python's clock has no zone here, and microseconds, which C has not.
    const auto microseconds =
        std::chrono::duration_cast<std::chrono::microseconds>(runtime.now().time_since_epoch()).count() %
        1'000'000;
    std::string result;
    for (std::size_t at = 0; at < wanted.size();) {
        const std::size_t letter = at + (wanted[at] == '%' && wanted.substr(at + 1, 1) == "-" ? 2 : 1);
        const bool field_begins =
            wanted[at] == '%' && letter < wanted.size() &&
            (std::isalpha(static_cast<unsigned char>(wanted[letter])) || wanted[letter] == '%');
        if (!field_begins) {
            result += wanted[at++];
            continue;
        }
        const std::size_t size = letter + 1 - at;
        const std::string field = wanted.substr(at, size);
        at += size;
        if (field == "%f") {
            result += fmt::format("{:06}", microseconds);
        } else if (field != "%z" && field != "%Z") {
            char buffer[256];
            result.append(buffer, std::strftime(buffer, sizeof buffer, field.c_str(), &local));
        }
    }
    return runtime.text(std::move(result));
}

}  // namespace

Filter find_filter(std::string_view name) {
    const auto found = filters().find(name);
    return found == filters().end() ? nullptr : found->second;
}

Test find_test(std::string_view name) {
    const auto found = tests().find(name);
    return found == tests().end() ? nullptr : found->second;
}

std::vector<Named<Function>> global_functions() {
    return {{"range", make_range},         {"dict", make_dict},     {"namespace", make_namespace},
            {"cycler", make_cycler},       {"joiner", make_joiner}, {"raise_exception", raise_exception},
            {"strftime_now", strftime_now}};
}

}  // namespace drover::jinja
