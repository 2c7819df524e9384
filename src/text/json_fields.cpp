#include "text/json_fields.h"

#include <fmt/format.h>

#include "core/error.h"

namespace drover {

JsonFields::JsonFields(const Json& value, std::string where) : value_(value), where_(std::move(where)) {
    if (!value.is_object()) throw Error(fmt::format("{} is not an object.", where_), "Fetch the file again.");
}

const Json* JsonFields::find(std::string_view key) const {
    const auto member = value_.find(key);
    return member == value_.end() || member->is_null() ? nullptr : &*member;
}

const Json& JsonFields::at(std::string_view key) const {
    const Json* member = find(key);
    if (!member) wrong(key, "missing");
    return *member;
}

void JsonFields::wrong(std::string_view key, std::string_view expected) const {
    if (expected == "missing")
        throw Error(fmt::format("{} has no \"{}\".", where_, key), "Fetch the file again.");
    throw Error(fmt::format("{}: \"{}\" is not {}.", where_, key, expected),
                "Fix the file or fetch it again.");
}

std::string JsonFields::text(std::string_view key) const {
    const Json& member = at(key);
    if (!member.is_string()) wrong(key, "a string");
    return member.get<std::string>();
}

std::optional<std::string> JsonFields::optional_text(std::string_view key) const {
    return find(key) ? std::optional(text(key)) : std::nullopt;
}

bool JsonFields::flag(std::string_view key, bool otherwise) const {
    const Json* member = find(key);
    if (!member) return otherwise;
    if (!member->is_boolean()) wrong(key, "true or false");
    return member->get<bool>();
}

std::int64_t JsonFields::integer(std::string_view key, std::int64_t otherwise) const {
    const Json* member = find(key);
    if (!member) return otherwise;
    if (!member->is_number_integer() ||
        (member->is_number_unsigned() && member->get<std::uint64_t>() > INT64_MAX))
        wrong(key, "an integer");
    return member->get<std::int64_t>();
}

const Json& JsonFields::list(std::string_view key) const {
    const Json& member = at(key);
    if (!member.is_array()) wrong(key, "a list");
    return member;
}

void unsupported_component(const JsonFields& component, std::string_view type) {
    throw Error(fmt::format("{} is of type \"{}\", which is not supported.", component.where(), type),
                "docs/tokenizers.md lists what is; use another tokenizer or convert this one.");
}

}  // namespace drover
