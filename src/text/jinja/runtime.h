#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/limits.h"
#include "text/jinja/value.h"

namespace drover::jinja {

/// What one rendering owns: the values it makes, the limits it keeps and the line it is at. Every function
/// that makes values or fails takes one.
class Runtime {
  public:
    Runtime(std::string_view template_name, const Limits& limits, std::chrono::system_clock::time_point now)
        : template_name_(template_name), limits_(limits), now_(now) {}
    Runtime(const Runtime&) = delete;
    Runtime& operator=(const Runtime&) = delete;

    const std::string& template_name() const { return template_name_; }
    std::chrono::system_clock::time_point now() const { return now_; }
    int line() const { return line_; }
    void at_line(int line) { line_ = line; }

    /// Throws an Error: the template does on this line what Python would raise an exception for.
    [[noreturn]] void fail(std::string_view what) const;
    /// Throws an Error: the template called raise_exception.
    [[noreturn]] void refuse(std::string_view why) const;
    /// Throws an Error: a limit is reached.
    [[noreturn]] void too_much(std::string_view what) const;

    /// Counts work; Error past the limit.
    void step(std::size_t count = 1);
    /// Counts the work of looking for a text of `wanted` bytes in one of `size`, where each place may agree
    /// with all of it but the end.
    void search(std::size_t size, std::size_t wanted);
    /// Error if a text of this size would be too long; for use before it is made.
    void expect_room(std::size_t bytes);

    /// Counts levels of recursion while it lives.
    class Level {
      public:
        explicit Level(Runtime& runtime) : runtime_(runtime) { runtime_.enter(); }
        ~Level() { --runtime_.depth_; }
        Level(const Level&) = delete;

      private:
        Runtime& runtime_;
    };

    template <class Type>
    Type& make(std::size_t bytes = 0) {
        take(bytes + sizeof(Type));
        auto object = std::make_unique<Type>();
        Type& made = *object;
        objects_.push_back(std::move(object));
        return made;
    }

    Value text(std::string bytes, bool markup = false);
    Value list(std::vector<Value> items) { return sequence(Kind::list, std::move(items)); }
    Value tuple(std::vector<Value> items) { return sequence(Kind::tuple, std::move(items)); }
    /// Of a kind that holds a SequenceObject, apart from a range.
    Value sequence(Kind kind, std::vector<Value> items);
    Value iterator(std::vector<Value> items);
    Value undefined(std::string message);
    DictObject& dict();
    /// Counts bytes that a value grows by.
    void account(std::size_t bytes) { take(bytes); }

  private:
    void enter();
    void take(std::size_t bytes);

    std::string template_name_;
    Limits limits_;
    std::chrono::system_clock::time_point now_;
    int line_ = 1;
    int depth_ = 0;
    std::size_t steps_ = 0, bytes_ = 0;
    std::vector<std::unique_ptr<Object>> objects_;
};

}  // namespace drover::jinja
