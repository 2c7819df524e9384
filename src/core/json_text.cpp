#include "core/json_text.h"

#include <fmt/format.h>

#include <set>
#include <vector>

#include "core/error.h"
#include "core/text_file.h"

namespace drover {
namespace {

/// Shortens the parser's message: drops its "[json.exception…]" tag.
std::string_view plain_reason(std::string_view what) {
    const auto end_of_tag = what.find("] ");
    return end_of_tag == std::string_view::npos ? what : what.substr(end_of_tag + 2);
}

nlohmann::json sorted(const Json& value) {
    if (value.is_object()) {
        nlohmann::json copy = nlohmann::json::object();  // std::map: sorted by key
        for (const auto& [key, member] : value.items()) copy[key] = sorted(member);
        return copy;
    }
    if (value.is_array()) {
        nlohmann::json copy = nlohmann::json::array();
        for (const auto& member : value) copy.push_back(sorted(member));
        return copy;
    }
    return nlohmann::json::parse(value.dump());
}

}  // namespace

Json parse_json(std::string_view text, std::string_view where) {
    // Writing JSON back recurses, so nesting without bounds would exhaust the stack.
    constexpr int deepest = 200;
    // The library treats a zero byte as the end of the text and ignores what follows.
    if (text.find('\0') != std::string_view::npos)
        throw Error(fmt::format("{} is not valid JSON: it holds a zero byte.", where),
                    "Fetch or write the file again.");
    std::vector<std::set<std::string>> open_objects;
    std::string duplicate;
    const Json::parser_callback_t watch_keys = [&](int depth, Json::parse_event_t event, Json& parsed) {
        if (depth > deepest)
            throw Error(fmt::format("{} nests lists and objects more than {} deep.", where, deepest),
                        "Fix the file; no configuration needs that.");
        if (event == Json::parse_event_t::object_start) open_objects.emplace_back();
        if (event == Json::parse_event_t::object_end) open_objects.pop_back();
        if (event == Json::parse_event_t::key && duplicate.empty() &&
            !open_objects.back().insert(parsed.get<std::string>()).second)
            duplicate = parsed.get<std::string>();
        return true;
    };
    Json value;
    try {
        value = Json::parse(text.begin(), text.end(), watch_keys);
    } catch (const nlohmann::json::exception& failure) {
        throw Error(fmt::format("{} is not valid JSON: {}.", where, plain_reason(failure.what())),
                    "Fix the file, for example with `python3 -m json.tool`.");
    }
    if (!duplicate.empty())
        throw Error(fmt::format("{} has the key \"{}\" twice in one object.", where, duplicate),
                    "Remove one of them.");
    return value;
}

Json read_json_file(const std::filesystem::path& path) {
    return parse_json(read_text_file(path), path.string());
}

std::string sorted_json_text(const Json& value, int indent) {
    return sorted(value).dump(indent);
}

}  // namespace drover
