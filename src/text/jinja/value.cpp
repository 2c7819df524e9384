#include "text/jinja/value.h"

namespace drover::jinja {
namespace {

/// Up to here comparing keys is faster than a table.
constexpr std::size_t few_entries = 8;

}  // namespace

Value Value::boolean(bool value) {
    Value result(Kind::boolean, nullptr);
    result.whole_ = value ? 1 : 0;
    return result;
}

Value Value::integer(std::int64_t value) {
    Value result(Kind::integer, nullptr);
    result.whole_ = value;
    return result;
}

Value Value::real(double value) {
    Value result(Kind::real, nullptr);
    result.real_ = value;
    return result;
}

bool Value::is_sequence() const {
    switch (kind_) {
        case Kind::list:
        case Kind::tuple:
        case Kind::dict_items:
        case Kind::dict_keys:
        case Kind::dict_values:
        case Kind::range:
            return true;
        default:
            return false;
    }
}

double Value::number() const {
    return kind_ == Kind::real ? real_ : static_cast<double>(whole_);
}

const std::string& Value::text() const {
    return as<TextObject>().bytes;
}

const SequenceObject& Value::sequence() const {
    return as<SequenceObject>();
}

const DictObject& Value::dict() const {
    return as<DictObject>();
}

std::size_t DictObject::position(std::string_view key) const {
    if (entries.size() > few_entries) {
        const auto found = positions_.find(key);
        return found == positions_.end() ? nowhere : found->second;
    }
    for (std::size_t i = 0; i < entries.size(); ++i)
        if (entries[i].first.is_text() && entries[i].first.text() == key) return i;
    return nowhere;
}

const Value* DictObject::find(std::string_view key) const {
    const std::size_t at = position(key);
    return at == nowhere ? nullptr : &entries[at].second;
}

void DictObject::append(Value key, Value value) {
    entries.emplace_back(key, value);
    const auto remember = [&](std::size_t at) {
        if (entries[at].first.is_text()) positions_.emplace(entries[at].first.text(), at);
    };
    if (entries.size() == few_entries + 1)
        for (std::size_t i = 0; i < entries.size(); ++i) remember(i);
    else if (entries.size() > few_entries)
        remember(entries.size() - 1);
}

}  // namespace drover::jinja
