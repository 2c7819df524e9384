#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/runtime.h"
#include "text/jinja/value.h"

/// What Python's operators and built-in functions do with values. All of them fail as Python does.
namespace drover::jinja {

/// type(value).__name__
std::string_view type_name(const Value& value);
/// The type as Jinja's messages name it: "dict object", "None".
std::string object_name(const Value& value);

bool is_list_or_tuple(const Value& value);

/// bool(value)
bool truth(const Value& value);
/// left == right
bool equal(Runtime& runtime, const Value& left, const Value& right);
/// left < right and its siblings
enum class Order { less, less_or_equal, greater, greater_or_equal };
bool ordered(Runtime& runtime, const Value& left, const Value& right, Order order);
/// item in container
bool contains(Runtime& runtime, const Value& container, const Value& item);
/// `left is right`
bool same(const Value& left, const Value& right);

enum class Arithmetic { add, subtract, multiply, divide, floor_divide, modulo, power };
Value arithmetic(Runtime& runtime, Arithmetic operation, const Value& left, const Value& right);
Value negated(Runtime& runtime, const Value& value);

/// len(value); nothing where Python has none.
std::optional<std::size_t> length_if_any(const Value& value);
std::size_t length(Runtime& runtime, const Value& value);

/// Whether `for x in value` is possible.
bool is_iterable(const Value& value);
/// The items that a loop over `value` gives, valid as long as the runtime. An iterator is used up.
std::span<const Value> items_of(Runtime& runtime, const Value& value);

/// str(value)
std::string text_of(Runtime& runtime, const Value& value);
/// str(value) as a value; a text stays what it is.
Value as_text(Runtime& runtime, const Value& value);
/// repr(value)
std::string representation(Runtime& runtime, const Value& value);

/// Adds or replaces an entry; fails if the key has no hash.
void set_entry(Runtime& runtime, DictObject& dict, const Value& key, const Value& value);
/// Null if there is none.
const Value* find_entry(Runtime& runtime, const DictObject& dict, const Value& key);
/// Whether the value can be a key.
bool is_hashable(const Value& value);

/// value[start:stop:step]; absent parts are missing.
Value sliced(Runtime& runtime, const Value& value, const Value& start, const Value& stop, const Value& step);

/// & < > ' " as HTML wants them; a text that is marked safe as it is.
Value html_escaped(Runtime& runtime, const Value& value);

/// Fails if the value is undefined: it can be printed, tested and gone through, and nothing else.
void expect_defined(Runtime& runtime, const Value& value);
/// The integer in `value`; fails, naming `what`, if it is none.
std::int64_t expect_integer(Runtime& runtime, const Value& value, std::string_view what);
/// The text in `value`; fails, naming `what`, if it is none.
const std::string& expect_text(Runtime& runtime, const Value& value, std::string_view what);

}  // namespace drover::jinja
