#include "text/chat/special_guard.h"

#include <algorithm>

#include "text/utf8.h"

namespace drover {

SpecialGuard::SpecialGuard(const Tokenizer& tokenizer) {
    for (const std::string& token : tokenizer.special_tokens())
        // A token of one character has no place for a guard.
        if (!token.empty() && decode_utf8(token).length < token.size()) special_.add(token, 0);
}

bool SpecialGuard::is_needed(const Json& value) const {
    if (special_.empty()) return false;
    if (value.is_string()) return special_.find(value.get_ref<const std::string&>(), 0).has_value();
    if (value.is_array())
        return std::any_of(value.begin(), value.end(), [&](const Json& item) { return is_needed(item); });
    if (!value.is_object()) return false;
    for (const auto& [key, item] : value.items())
        if (special_.find(key, 0) || is_needed(item)) return true;
    return false;
}

Json SpecialGuard::guarded(const Json& value) const {
    if (value.is_string()) return guarded_text(value.get_ref<const std::string&>());
    if (value.is_array()) {
        Json result = Json::array();
        for (const Json& item : value) result.push_back(guarded(item));
        return result;
    }
    if (!value.is_object()) return value;
    Json result = Json::object();
    for (const auto& [key, item] : value.items()) result[guarded_text(key)] = guarded(item);
    return result;
}

std::string SpecialGuard::guarded_text(std::string_view text) const {
    std::string result;
    std::size_t done = 0;
    while (const auto match = special_.find(text, done)) {
        // Behind the first character; another token may begin at the next one.
        const std::size_t inside = match->begin + std::max(decode_utf8(text.substr(match->begin)).length, 1u);
        result.append(text.substr(done, inside - done)).append(token_guard);
        done = inside;
    }
    return result.append(text.substr(done));
}

}  // namespace drover
