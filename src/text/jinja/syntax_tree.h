#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja/builtins.h"
#include "text/jinja/operations.h"
#include "text/jinja/value.h"

namespace drover::jinja {

/// Where a variable lives: in the slots of the function that is `hops` functions further out.
struct Place {
    int hops = 0;
    int slot = 0;
};

enum class ExpressionKind : std::uint8_t {
    constant,
    name,              ///< also as a target
    namespace_target,  ///< name.attribute, to be set
    list,
    tuple,      ///< also as a target
    dict,       ///< parts: key, value, key, value, …
    attribute,  ///< part.name
    item,       ///< parts: object, key
    slice,      ///< parts: object, start, stop, step; each of the last three may be null
    call,       ///< parts: function, arguments…
    filter,     ///< parts: value (null: the text of a block), arguments…
    test,       ///< parts: value, arguments…
    negative,
    positive,
    logical_not,
    logical_and,
    logical_or,
    arithmetic,
    concatenation,
    comparison,   ///< parts: operands, one more than comparisons
    conditional,  ///< parts: condition, value, other value (may be null)
};

enum class Comparison : std::uint8_t {
    equal,
    different,
    less,
    less_or_equal,
    greater,
    greater_or_equal,
    in,
    not_in
};

struct Expression;
using ExpressionPointer = std::unique_ptr<Expression>;

struct Expression {
    ExpressionKind kind = ExpressionKind::constant;
    int line = 1;
    int height = 1;         ///< of the tree under it
    std::string name;       ///< of a variable, attribute, filter or test
    std::string attribute;  ///< of a namespace_target
    Value constant;
    Arithmetic operation = Arithmetic::add;
    std::vector<Comparison> comparisons;
    std::vector<ExpressionPointer> parts;
    /// Of calls, filters and tests: name=value, *list, **dict.
    std::vector<std::pair<std::string, ExpressionPointer>> named;
    ExpressionPointer star, double_star;
    Filter filter = nullptr;  ///< null if there is none of that name
    Test test = nullptr;      ///< the same
    Place place;
};

/// What a variable holds when its frame is entered.
struct Load {
    enum class From { nothing, context, outer, parameter } from = From::nothing;
    int slot = 0;
    std::string name;
    Place outer;
};

/// A scope: the variables that something sets for itself.
struct Frame {
    std::vector<Load> loads;
};

enum class StatementKind : std::uint8_t {
    data,
    output,
    conditional,  ///< if
    loop,         ///< for
    set,
    set_block,
    filter_block,
    with,
    macro,
    call_block,
    generation,
    break_loop,
    continue_loop,
};

struct Statement;
using Body = std::vector<std::unique_ptr<Statement>>;

/// What macros and call blocks have.
struct MacroParts {
    std::string name;
    std::vector<std::string> parameters;
    std::vector<ExpressionPointer> defaults;                    ///< of the last parameters
    std::vector<int> slots;                                     ///< of the parameters
    int caller_slot = -1, kwargs_slot = -1, varargs_slot = -1;  ///< where the body uses these names
    int slot_count = 0;
};

struct Statement {
    StatementKind kind = StatementKind::data;
    int line = 1;
    Value data;                    ///< of data
    ExpressionPointer target;      ///< of a loop, set or set_block
    ExpressionPointer expression;  ///< printed, tested, gone through, set, called; a block's filter
    ExpressionPointer condition;   ///< of a loop: "for x in y if condition"
    std::vector<ExpressionPointer> targets, values;        ///< of with
    std::vector<std::pair<ExpressionPointer, Body>> more;  ///< elif
    Body body, otherwise;
    Frame frame;                         ///< of the body
    Frame otherwise_frame;               ///< of a loop's else
    Frame condition_frame;               ///< of a loop's condition
    ExpressionPointer condition_target;  ///< the target again, in that frame
    int loop_slot = -1;                  ///< of the variable "loop"
    MacroParts macro;
    Place place;  ///< of a macro: where it is kept
};

/// A template that was read: its tree and the texts that the tree holds.
struct SyntaxTree {
    Body body;
    Frame frame;
    int slot_count = 0;
    bool has_generation = false;
    std::vector<std::unique_ptr<Object>> constants;
};

}  // namespace drover::jinja
