#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"

namespace drover {

/// Reads the keys of one JSON object of a settings file. Errors name the object and the key; what was never
/// asked for is named by check_all_known(). A key whose value is null counts as not given.
class ObjectReader {
  public:
    /// UsageError when `object` is not one. It must outlive the reader.
    ObjectReader(const Json& object, std::string where);

    const std::string& where() const { return where_; }
    bool has(std::string_view key);
    /// Whether the value is the word "auto".
    bool is_auto(std::string_view key);

    bool flag(std::string_view key, bool fallback);
    std::int64_t integer(std::string_view key, std::int64_t fallback, std::int64_t least);
    double number(std::string_view key, double fallback);
    std::string text(std::string_view key, std::string_view fallback);
    /// A text that must be one of the choices, in any case.
    std::string choice(std::string_view key, std::string_view fallback,
                       const std::vector<std::string>& choices);
    /// A list of texts; one text counts as a list of one.
    std::vector<std::string> texts(std::string_view key);
    /// A reader of the object under `key`; of an empty one when there is none.
    ObjectReader object(std::string_view key);
    /// The value itself; null when there is none.
    const Json& value(std::string_view key);

    /// Takes keys that are known but act on nothing here; returns those that are given.
    std::vector<std::string> without_effect(const std::vector<std::string>& keys);

    [[noreturn]] void fail(std::string_view key, std::string_view what, std::string_view remedy) const;
    /// UsageError for the first key that was never asked for, with the nearest one that was.
    void check_all_known() const;

  private:
    const Json& object_;
    std::string where_;
    std::set<std::string, std::less<>> known_;
};

}  // namespace drover
