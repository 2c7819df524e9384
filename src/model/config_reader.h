#pragma once

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/json.h"

namespace drover {

/// Reads the keys of one JSON object of a configuration file, with errors that name the file and the key. A
/// key whose value is null counts as not given.
class ConfigReader {
  public:
    ConfigReader(const Json& object, std::string_view where) : object_(object), where_(where) {
        if (!object.is_object())
            throw Error(fmt::format("{} does not hold a JSON object.", where),
                        "A config.json starts with `{`.");
    }

    bool has(std::string_view key) const {
        const auto found = object_.find(key);
        return found != object_.end() && !found->is_null();
    }

    /// Whether the file explicitly says null.
    bool is_null(std::string_view key) const {
        const auto found = object_.find(key);
        return found != object_.end() && found->is_null();
    }

    [[noreturn]] void fail(std::string_view key, std::string_view what, std::string_view remedy) const {
        throw Error(fmt::format("{}: {} {}.", where_, key, what), remedy);
    }

    std::int64_t integer(std::string_view key, std::int64_t fallback, std::int64_t least,
                         std::int64_t most) const {
        if (!has(key)) return fallback;
        const Json& value = object_.at(std::string(key));
        const std::int64_t number = whole_number(key, value);
        if (number < least || number > most)
            fail(key, fmt::format("is {}", value.dump()),
                 fmt::format("It must be from {} to {}.", least, most));
        return number;
    }

    double number(std::string_view key, double fallback) const {
        if (!has(key)) return fallback;
        const Json& value = object_.at(std::string(key));
        if (!value.is_number() || !std::isfinite(value.get<double>()))
            fail(key, fmt::format("is {}", value.dump()), "It must be a number.");
        return value.get<double>();
    }

    double positive_number(std::string_view key, double fallback) const {
        const double value = number(key, fallback);
        if (!(value > 0)) fail(key, fmt::format("is {}", value), "It must be above 0.");
        return value;
    }

    bool boolean(std::string_view key, bool fallback) const {
        if (!has(key)) return fallback;
        const Json& value = object_.at(std::string(key));
        if (!value.is_boolean()) fail(key, fmt::format("is {}", value.dump()), "It must be true or false.");
        return value.get<bool>();
    }

    std::string text(std::string_view key, std::string_view fallback) const {
        if (!has(key)) return std::string(fallback);
        const Json& value = object_.at(std::string(key));
        if (!value.is_string()) fail(key, fmt::format("is {}", value.dump()), "It must be a string.");
        return value.get<std::string>();
    }

    /// A token id or a list of them.
    std::vector<std::int64_t> token_ids(std::string_view key, std::vector<std::int64_t> fallback) const {
        if (!has(key)) return fallback;
        const Json& value = object_.at(std::string(key));
        std::vector<std::int64_t> ids;
        if (value.is_array())
            for (const Json& id : value) ids.push_back(whole_number(key, id));
        else
            ids.push_back(whole_number(key, value));
        if (ids.empty()) fail(key, "is an empty list", "Give a token id, or null.");
        return ids;
    }

    ConfigReader object(std::string_view key) const {
        const Json& value = object_.at(std::string(key));
        if (!value.is_object()) fail(key, fmt::format("is {}", value.dump()), "It must be a JSON object.");
        return ConfigReader(value, fmt::format("{}: {}", where_, key));
    }

  private:
    /// JSON writers in other languages print whole numbers as 32.0 sometimes.
    std::int64_t whole_number(std::string_view key, const Json& value) const {
        if (value.is_number_unsigned() && value.get<std::uint64_t>() <= INT64_MAX)
            return value.get<std::int64_t>();
        if (value.is_number_integer() && !value.is_number_unsigned()) return value.get<std::int64_t>();
        if (value.is_number_float()) {
            const double number = value.get<double>();
            if (number == std::floor(number) && std::fabs(number) < 9e15)
                return static_cast<std::int64_t>(number);
        }
        fail(key, fmt::format("is {}", value.dump()), "It must be a whole number.");
    }

    const Json& object_;
    std::string where_;
};

}  // namespace drover
