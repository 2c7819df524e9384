#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"

namespace drover {

/// Reads the keys of one JSON object of a settings file. Errors name the object and the key;
/// check_all_known() reports keys that were never read. A key whose value is null counts as not given.
class ObjectReader {
  public:
    /// UsageError if `object` is not an object. It must outlive the reader.
    ObjectReader(const Json& object, std::string where);

    const std::string& where() const { return where_; }
    bool has(std::string_view key);
    /// Whether the value is the word "auto".
    bool is_auto(std::string_view key);

    bool flag(std::string_view key, bool fallback);
    std::int64_t integer(std::string_view key, std::int64_t fallback, std::int64_t least);
    double number(std::string_view key, double fallback);
    std::string text(std::string_view key, std::string_view fallback);
    /// A text that must be one of the choices, ignoring case.
    std::string choice(std::string_view key, std::string_view fallback,
                       const std::vector<std::string>& choices);
    /// A list of texts; one text counts as a list of one.
    std::vector<std::string> texts(std::string_view key);
    /// A reader of the object under `key`, or of an empty object if there is none.
    ObjectReader object(std::string_view key);
    /// The value itself; null if there is none.
    const Json& value(std::string_view key);

    /// Reads keys that are known but have no effect here; returns those that are given.
    std::vector<std::string> without_effect(const std::vector<std::string>& keys);

    [[noreturn]] void fail(std::string_view key, std::string_view what, std::string_view remedy) const;
    /// UsageError for the first key that was never read, suggesting the nearest one that was.
    void check_all_known() const;

  private:
    const Json& object_;
    std::string where_;
    std::set<std::string, std::less<>> known_;
};

}  // namespace drover
