#include <fmt/format.h>

#include <cmath>

#include "text/jinja/format.h"
#include "text/jinja/operations.h"

namespace drover::jinja {
namespace {

std::string_view sign_of(Arithmetic operation) {
    constexpr std::string_view signs[] = {"+", "-", "*", "/", "//", "%", "** or pow()"};
    return signs[static_cast<int>(operation)];
}

[[noreturn]] void fail_too_large(Runtime& runtime) {
    runtime.fail("an integer does not fit into 64 bits");
}

Value whole_power(Runtime& runtime, std::int64_t base, std::int64_t exponent) {
    if (exponent < 0) {
        if (base == 0) runtime.fail("0.0 cannot be raised to a negative power");
        return Value::real(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
    }
    std::int64_t result = 1;
    while (exponent > 0) {
        if ((exponent & 1) && __builtin_mul_overflow(result, base, &result)) fail_too_large(runtime);
        exponent >>= 1;
        if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) fail_too_large(runtime);
    }
    return Value::integer(result);
}

Value whole_arithmetic(Runtime& runtime, Arithmetic operation, std::int64_t a, std::int64_t b) {
    std::int64_t result = 0;
    bool overflow = false;
    switch (operation) {
        case Arithmetic::add:
            overflow = __builtin_add_overflow(a, b, &result);
            break;
        case Arithmetic::subtract:
            overflow = __builtin_sub_overflow(a, b, &result);
            break;
        case Arithmetic::multiply:
            overflow = __builtin_mul_overflow(a, b, &result);
            break;
        case Arithmetic::divide:
            if (b == 0) runtime.fail("division by zero");
            return Value::real(
                static_cast<double>(static_cast<long double>(a) / static_cast<long double>(b)));
        case Arithmetic::floor_divide:
        case Arithmetic::modulo: {
            if (b == 0) runtime.fail("integer division or modulo by zero");
            if (b == -1) {  // INT64_MIN / −1 overflows
                if (operation == Arithmetic::modulo) return Value::integer(0);
                overflow = __builtin_sub_overflow(std::int64_t{0}, a, &result);
                break;
            }
            std::int64_t quotient = a / b, rest = a % b;
            if (rest != 0 && (rest < 0) != (b < 0)) {
                rest += b;
                --quotient;
            }
            return Value::integer(operation == Arithmetic::modulo ? rest : quotient);
        }
        case Arithmetic::power:
            return whole_power(runtime, a, b);
    }
    if (overflow) fail_too_large(runtime);
    return Value::integer(result);
}

Value real_arithmetic(Runtime& runtime, Arithmetic operation, double a, double b) {
    switch (operation) {
        case Arithmetic::add:
            return Value::real(a + b);
        case Arithmetic::subtract:
            return Value::real(a - b);
        case Arithmetic::multiply:
            return Value::real(a * b);
        case Arithmetic::divide:
            if (b == 0) runtime.fail("float division by zero");
            return Value::real(a / b);
        case Arithmetic::floor_divide:
        case Arithmetic::modulo: {
            if (b == 0) runtime.fail("float floor division or modulo by zero");
            double rest = std::fmod(a, b);
            double quotient = (a - rest) / b;
            if (rest != 0) {
                if ((b < 0) != (rest < 0)) {
                    rest += b;
                    quotient -= 1;
                }
            } else {
                rest = std::copysign(0.0, b);
            }
            if (operation == Arithmetic::modulo) return Value::real(rest);
            if (quotient == 0) return Value::real(std::copysign(0.0, a / b));
            const double whole = std::floor(quotient);
            return Value::real(quotient - whole > 0.5 ? whole + 1 : whole);
        }
        case Arithmetic::power: {
            if (a == 0 && b < 0) runtime.fail("0.0 cannot be raised to a negative power");
            const double result = std::pow(a, b);
            if (std::isnan(result) && !std::isnan(a) && !std::isnan(b))
                runtime.fail("a negative number has no power that is a fraction");
            return Value::real(result);
        }
    }
    return {};
}

Value repeated(Runtime& runtime, const Value& value, std::int64_t times) {
    const std::size_t count = times < 0 ? 0 : static_cast<std::size_t>(times);
    const auto expect_product = [&](std::size_t size, std::size_t unit) {
        std::size_t bytes = 0;
        if (__builtin_mul_overflow(size * unit, count, &bytes)) bytes = static_cast<std::size_t>(-1);
        runtime.expect_room(bytes);
        runtime.step(bytes / 64);
    };
    if (value.is_text()) {
        expect_product(value.text().size(), 1);
        std::string result;
        result.reserve(value.text().size() * count);
        for (std::size_t i = 0; i < count && !value.text().empty(); ++i) result += value.text();
        return runtime.text(std::move(result), value.as<TextObject>().markup);
    }
    const std::vector<Value>& items = value.sequence().items;
    expect_product(items.size(), sizeof(Value));
    std::vector<Value> result;
    for (std::size_t i = 0; i < count && !items.empty(); ++i)
        result.insert(result.end(), items.begin(), items.end());
    return runtime.sequence(value.kind(), std::move(result));
}

Value joined_texts(Runtime& runtime, const Value& left, const Value& right) {
    const bool markup = left.as<TextObject>().markup || right.as<TextObject>().markup;
    if (markup) {
        const Value a = html_escaped(runtime, left), b = html_escaped(runtime, right);
        return runtime.text(a.text() + b.text(), true);
    }
    runtime.expect_room(left.text().size() + right.text().size());
    return runtime.text(left.text() + right.text());
}

}  // namespace

Value arithmetic(Runtime& runtime, Arithmetic operation, const Value& left, const Value& right) {
    if (operation == Arithmetic::modulo && left.is_text()) return percent_formatted(runtime, left, right);
    expect_defined(runtime, left);
    expect_defined(runtime, right);
    if (left.is_whole() && right.is_whole())
        return whole_arithmetic(runtime, operation, left.whole(), right.whole());
    if (left.is_number() && right.is_number())
        return real_arithmetic(runtime, operation, left.number(), right.number());
    if (operation == Arithmetic::add) {
        if (left.is_text() && right.is_text()) return joined_texts(runtime, left, right);
        if (left.kind() == right.kind() && is_list_or_tuple(left)) {
            std::vector<Value> items = left.sequence().items;
            const auto& more = right.sequence().items;
            runtime.step((items.size() + more.size()) / 4);
            items.insert(items.end(), more.begin(), more.end());
            return runtime.sequence(left.kind(), std::move(items));
        }
    }
    if (operation == Arithmetic::multiply) {
        if (right.is_whole() && (left.is_text() || is_list_or_tuple(left)))
            return repeated(runtime, left, right.whole());
        if (left.is_whole() && (right.is_text() || is_list_or_tuple(right)))
            return repeated(runtime, right, left.whole());
    }
    runtime.fail(fmt::format("unsupported operand type(s) for {}: '{}' and '{}'", sign_of(operation),
                             type_name(left), type_name(right)));
}

Value negated(Runtime& runtime, const Value& value) {
    expect_defined(runtime, value);
    if (value.is(Kind::real)) return Value::real(-value.number());
    if (!value.is_whole()) runtime.fail(fmt::format("bad operand type for unary -: '{}'", type_name(value)));
    return whole_arithmetic(runtime, Arithmetic::subtract, 0, value.whole());
}

}  // namespace drover::jinja
