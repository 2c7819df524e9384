#include "args/arguments.h"

#include <fmt/format.h>

#include <algorithm>

#include "args/argument_value.h"
#include "core/error.h"

namespace drover {
namespace {

bool is_secret(std::string_view name) {
    return name == "token" || name == "hub_token";
}

template <class Value>
std::optional<Value> if_set(const Json& value, bool right_type, std::string_view name) {
    if (value.is_null()) return std::nullopt;
    require(right_type, fmt::format("the argument {} is asked for as another type", name));
    return value.get<Value>();
}

template <class Value>
Value must_be_set(std::optional<Value> value, std::string_view name) {
    require(value.has_value(), fmt::format("the argument {} may be unset, but a value is asked for", name));
    return *value;
}

std::string value_text(const Json& value) {
    if (value.is_null()) return "unset";
    if (value.is_boolean()) return value.get<bool>() ? "yes" : "no";
    if (value.is_string()) return value.get<std::string>();
    if (value.is_array())
        return value.empty() ? "unset"
                             : fmt::format("{}", fmt::join(value.get<std::vector<std::string>>(), " "));
    return value.dump();
}

}  // namespace

std::string ArgumentSource::text() const {
    switch (kind) {
        case Kind::default_value:
            return "default";
        case Kind::command_line:
            return "command line";
        case Kind::file:
            return "file " + detail;
        case Kind::environment:
            return "environment variable " + detail;
        case Kind::deepspeed:
            return "DeepSpeed config";
        case Kind::implied:
            return "implied by " + detail;
    }
    bug("a source of no kind");
}

Arguments::Arguments(const ArgumentTable& table) : table_(&table) {
    for (const ArgumentGroup& group : table.groups())
        for (const Argument& argument : group.arguments)
            settings_.emplace(argument.name, Setting{default_value(argument), {}});
}

const Arguments::Setting& Arguments::setting(std::string_view name) const {
    const auto found = settings_.find(name);
    require(found != settings_.end(), fmt::format("there is no argument {}", name));
    return found->second;
}

std::optional<bool> Arguments::optional_flag(std::string_view name) const {
    return if_set<bool>(value(name), value(name).is_boolean(), name);
}

std::optional<std::int64_t> Arguments::optional_integer(std::string_view name) const {
    return if_set<std::int64_t>(value(name), value(name).is_number_integer(), name);
}

std::optional<double> Arguments::optional_number(std::string_view name) const {
    return if_set<double>(value(name), value(name).is_number(), name);
}

std::optional<std::string> Arguments::optional_text(std::string_view name) const {
    return if_set<std::string>(value(name), value(name).is_string(), name);
}

bool Arguments::flag(std::string_view name) const {
    return must_be_set(optional_flag(name), name);
}

std::int64_t Arguments::integer(std::string_view name) const {
    return must_be_set(optional_integer(name), name);
}

double Arguments::number(std::string_view name) const {
    return must_be_set(optional_number(name), name);
}

const std::string& Arguments::text(std::string_view name) const {
    require(value(name).is_string(), fmt::format("the argument {} is unset or no text", name));
    return value(name).get_ref<const std::string&>();
}

std::vector<std::string> Arguments::words(std::string_view name) const {
    require(value(name).is_array(), fmt::format("the argument {} is no list", name));
    return value(name).get<std::vector<std::string>>();
}

const Json& Arguments::json(std::string_view name) const {
    require(value(name).is_null() || value(name).is_object(),
            fmt::format("the argument {} is no object", name));
    return value(name);
}

bool Arguments::given(std::string_view name) const {
    using Kind = ArgumentSource::Kind;
    const Kind kind = source(name).kind;
    return kind == Kind::command_line || kind == Kind::file || kind == Kind::environment;
}

const ArgumentSource& Arguments::source(std::string_view name) const {
    return setting(name).source;
}

void Arguments::set(std::string_view name, Json value, ArgumentSource source) {
    const auto found = settings_.find(name);
    require(found != settings_.end(), fmt::format("there is no argument {}", name));
    found->second = {std::move(value), std::move(source)};
}

void Arguments::imply(std::string_view name, Json value, std::string_view reason) {
    if (given(name)) return;
    set(name, std::move(value), {ArgumentSource::Kind::implied, std::string(reason)});
}

void Arguments::explain(std::string line) {
    if (std::find(explanations_.begin(), explanations_.end(), line) == explanations_.end())
        explanations_.push_back(std::move(line));
}

Json Arguments::to_json() const {
    Json all = Json::object();
    for (const auto& [name, setting] : settings_) all[name] = is_secret(name) ? Json(nullptr) : setting.value;
    return all;
}

std::string Arguments::settings_text(bool all) const {
    std::size_t width = 0;
    const auto differs = [&](const std::string& name, const Setting& setting) {
        return setting.value != default_value(*table_->find(name));
    };
    for (const auto& [name, setting] : settings_)
        if (all || differs(name, setting)) width = std::max(width, name.size());
    std::string text;
    for (const auto& [name, setting] : settings_) {
        const bool is_changed = differs(name, setting);
        if (!all && !is_changed) continue;
        const bool hidden = is_secret(name) && !setting.value.is_null();
        text += fmt::format("{:<{}} = {}  ({}{})\n", name, width,
                            hidden ? "(hidden)" : value_text(setting.value), setting.source.text(),
                            is_changed ? "; default " + value_text(default_value(*table_->find(name))) : "");
    }
    return text;
}

}  // namespace drover
