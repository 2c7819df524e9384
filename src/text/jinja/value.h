#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

/// Jinja for chat templates, with the results of Python's jinja2. See docs/chat-templates.md.
namespace drover::jinja {

/// Something that a Value points to. Its Runtime owns it until rendering ends, or its Template for ever, so
/// values that contain each other need no counting and may form circles.
struct Object {
    virtual ~Object() = default;
};

struct TextObject;
struct UndefinedObject;
struct SequenceObject;
struct DictObject;

enum class Kind : std::uint8_t {
    missing,  ///< no value at all: an argument that was not given, a variable that was not set
    undefined,
    none,
    boolean,
    integer,
    real,
    text,
    list,
    tuple,
    dict,
    dict_items,
    dict_keys,
    dict_values,
    range,
    iterator,
    name_space,
    macro,
    function,
    method,
    loop,
    cycler,
    joiner,
};

/// A value of Python, small enough to be copied. Only namespaces, iterators and loops ever change.
class Value {
  public:
    Value() = default;
    Value(Kind kind, Object* object) : kind_(kind), object_(object) {}
    static Value none() { return Value(Kind::none, nullptr); }
    static Value boolean(bool value);
    static Value integer(std::int64_t value);
    static Value real(double value);

    Kind kind() const { return kind_; }
    bool is(Kind kind) const { return kind_ == kind; }
    bool is_missing() const { return kind_ == Kind::missing; }
    bool is_undefined() const { return kind_ == Kind::undefined; }
    bool is_none() const { return kind_ == Kind::none; }
    bool is_text() const { return kind_ == Kind::text; }
    bool is_dict() const { return kind_ == Kind::dict; }
    /// bool is a kind of int in Python.
    bool is_whole() const { return kind_ == Kind::integer || kind_ == Kind::boolean; }
    bool is_number() const { return is_whole() || kind_ == Kind::real; }
    /// Kinds that hold a SequenceObject.
    bool is_sequence() const;

    bool as_bool() const { return whole_ != 0; }
    /// Of an integer or a boolean.
    std::int64_t whole() const { return whole_; }
    /// Of any number.
    double number() const;
    const std::string& text() const;
    const SequenceObject& sequence() const;
    const DictObject& dict() const;
    template <class Type>
    Type& as() const {
        return static_cast<Type&>(*object_);
    }
    const Object* object() const { return object_; }

  private:
    Kind kind_ = Kind::missing;
    union {
        Object* object_ = nullptr;
        std::int64_t whole_;
        double real_;
    };
};

struct TextObject : Object {
    std::string bytes;       ///< UTF-8
    std::size_t characters;  ///< code points
    bool markup;             ///< the result of "safe" or "escape"
};

struct UndefinedObject : Object {
    std::string message;  ///< "'x' is undefined"
};

/// A list, a tuple, a range, or the keys, values or items of a dict.
struct SequenceObject : Object {
    std::vector<Value> items;
    bool group = false;  ///< a tuple of groupby: items "grouper" and "list"
};

struct RangeObject : SequenceObject {
    std::int64_t start, stop, step;
};

/// What Python has generators for: it can be gone through once.
struct IteratorObject : Object {
    std::vector<Value> items;
    std::size_t next = 0;
};

/// Keys in the order in which they came.
struct DictObject : Object {
    std::vector<std::pair<Value, Value>> entries;

    static constexpr std::size_t nowhere = static_cast<std::size_t>(-1);
    /// The entry with this key.
    std::size_t position(std::string_view key) const;
    /// Null if there is none.
    const Value* find(std::string_view key) const;
    /// Adds an entry whose key is not there yet.
    void append(Value key, Value value);

  private:
    std::unordered_map<std::string_view, std::size_t> positions_;  // of texts, once there are many entries
};

struct NamespaceObject : Object {
    DictObject* attributes;
};

struct CyclerObject : Object {
    std::vector<Value> items;
    std::size_t position = 0;
};

struct JoinerObject : Object {
    Value separator;
    bool used = false;
};

}  // namespace drover::jinja
