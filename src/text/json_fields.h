#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/json.h"

namespace drover {

/// Typed access to the members of a JSON object. Errors name the place and the key.
class JsonFields {
  public:
    /// Error if `value` is not an object. `where` is a file, or a place in it such as "x.json, decoder".
    JsonFields(const Json& value, std::string where);

    const std::string& where() const { return where_; }
    /// Null when absent or null.
    const Json* find(std::string_view key) const;
    /// Error when absent.
    const Json& at(std::string_view key) const;

    std::string text(std::string_view key) const;
    std::optional<std::string> optional_text(std::string_view key) const;
    bool flag(std::string_view key, bool otherwise) const;
    std::int64_t integer(std::string_view key, std::int64_t otherwise) const;
    /// An array; Error if absent or something else.
    const Json& list(std::string_view key) const;

    /// Throws an Error: `key` is not what it should be.
    [[noreturn]] void wrong(std::string_view key, std::string_view expected) const;

  private:
    const Json& value_;
    std::string where_;
};

/// Throws an Error: the component of this type is not supported.
[[noreturn]] void unsupported_component(const JsonFields& component, std::string_view type);

}  // namespace drover
