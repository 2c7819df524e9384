#include "args/object_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/words.h"
#include "core/error.h"

namespace drover {
namespace {

const Json no_value = nullptr;
const Json empty_object = Json::object();

/// The value as JSON, short enough for a message.
std::string shown(const Json& value) {
    const std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
    return text.size() <= 60 ? text : text.substr(0, 57) + "…";
}

}  // namespace

ObjectReader::ObjectReader(const Json& object, std::string where)
    : object_(object), where_(std::move(where)) {
    if (!object.is_object())
        throw UsageError(fmt::format("{} is not a JSON object.", where_), "Write {\"key\": value, …}.");
}

const Json& ObjectReader::value(std::string_view key) {
    known_.emplace(key);
    const auto found = object_.find(key);
    return found == object_.end() ? no_value : *found;
}

bool ObjectReader::has(std::string_view key) {
    return !value(key).is_null();
}

bool ObjectReader::is_auto(std::string_view key) {
    const Json& found = value(key);
    return found.is_string() && found.get_ref<const std::string&>() == "auto";
}

void ObjectReader::fail(std::string_view key, std::string_view what, std::string_view remedy) const {
    throw UsageError(fmt::format("{}: {} {}.", where_, key, what), remedy);
}

bool ObjectReader::flag(std::string_view key, bool fallback) {
    const Json& found = value(key);
    if (found.is_null()) return fallback;
    if (found.is_boolean()) return found.get<bool>();
    if (found.is_string()) {
        const std::string word = lower_case(found.get<std::string>());
        if (word == "true" || word == "false") return word == "true";
    }
    fail(key, fmt::format("is {}, which is neither true nor false", shown(found)), "Write true or false.");
}

double ObjectReader::number(std::string_view key, double fallback) {
    const Json& found = value(key);
    if (found.is_null()) return fallback;
    if (!found.is_number() || !std::isfinite(found.get<double>()))
        fail(key, fmt::format("is {}, which is not a number", shown(found)), "Write a finite number.");
    return found.get<double>();
}

std::int64_t ObjectReader::integer(std::string_view key, std::int64_t fallback, std::int64_t least) {
    if (!has(key)) return fallback;
    const double read = number(key, 0);
    constexpr double largest = 9e15;  // doubles are whole and exact up to here
    if (read != std::floor(read) || std::abs(read) > largest || read < static_cast<double>(least))
        fail(key, fmt::format("is {}, which is not a whole number of at least {}", shown(value(key)), least),
             "Write such a number.");
    return static_cast<std::int64_t>(read);
}

std::string ObjectReader::text(std::string_view key, std::string_view fallback) {
    const Json& found = value(key);
    if (found.is_null()) return std::string(fallback);
    if (!found.is_string())
        fail(key, fmt::format("is {}, which is not a text", shown(found)), "Write it in quotes.");
    return found.get<std::string>();
}

std::string ObjectReader::choice(std::string_view key, std::string_view fallback,
                                 const std::vector<std::string>& choices) {
    const std::string read = text(key, fallback);
    for (const std::string& choice : choices)
        if (lower_case(choice) == lower_case(read)) return choice;
    fail(key, fmt::format("is {}, which is not known", shown(value(key))),
         fmt::format("Use {}.", either_of(choices)));
}

std::vector<std::string> ObjectReader::texts(std::string_view key) {
    const Json& found = value(key);
    if (found.is_null()) return {};
    if (found.is_string()) return {found.get<std::string>()};
    if (!found.is_array() ||
        !std::all_of(found.begin(), found.end(), [](const Json& item) { return item.is_string(); }))
        fail(key, fmt::format("is {}, which is not a list of texts", shown(found)), "Write [\"name\", …].");
    return found.get<std::vector<std::string>>();
}

ObjectReader ObjectReader::object(std::string_view key) {
    const Json& found = value(key);
    return {found.is_null() ? empty_object : found, fmt::format("{}: {}", where_, key)};
}

std::vector<std::string> ObjectReader::without_effect(const std::vector<std::string>& keys) {
    std::vector<std::string> given;
    for (const std::string& key : keys)
        if (has(key)) given.push_back(key);
    return given;
}

void ObjectReader::check_all_known() const {
    const std::vector<std::string> known(known_.begin(), known_.end());
    for (const auto& [key, member] : object_.items())
        if (!known_.contains(key))
            throw UsageError(
                fmt::format("{} has the key \"{}\", which is not known.", where_, key.substr(0, 60)),
                did_you_mean(key, known, "", fmt::format("Known keys are {}.", fmt::join(known, ", "))));
}

}  // namespace drover
