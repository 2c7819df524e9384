#include "hub/upload_answers.h"

#include <fmt/format.h>

#include <charconv>
#include <map>

#include "core/byte_text.h"
#include "core/error.h"
#include "core/json.h"
#include "hub/repository.h"
#include "hub/web_address.h"

namespace drover {
namespace {

Json upload_answer(std::string_view text, std::string_view where) {
    Json json = Json::parse(text, nullptr, false);
    if (!json.is_object())
        throw Error(fmt::format("The answer of {} is not a JSON object.", where), strange_server);
    return json;
}

std::string field_text(const Json& object, const char* key) {
    const auto found = object.find(key);
    return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

}  // namespace

std::vector<UploadMode> parse_upload_modes(std::string_view json, std::string_view where) {
    const Json answer = upload_answer(json, where);
    const auto files = answer.find("files");
    if (files == answer.end() || !files->is_array())
        throw Error(fmt::format("The answer of {} lists no files.", where), strange_server);
    std::vector<UploadMode> modes;
    for (const Json& file : *files) {
        const std::string mode = file.is_object() ? field_text(file, "uploadMode") : "";
        if (mode != "lfs" && mode != "regular")
            throw Error(fmt::format("The answer of {} does not say how a file is sent.", where),
                        strange_server);
        const auto ignored = file.find("shouldIgnore");
        modes.push_back({.path = field_text(file, "path"),
                         .is_large = mode == "lfs",
                         .is_ignored = ignored != file.end() && ignored->is_boolean() && ignored->get<bool>(),
                         .there = field_text(file, "oid")});
    }
    return modes;
}

std::vector<LargeUpload> parse_large_uploads(std::string_view json, std::string_view where) {
    const Json answer = upload_answer(json, where);
    const auto objects = answer.find("objects");
    if (objects == answer.end() || !objects->is_array())
        throw Error(fmt::format("The answer of {} lists no files.", where), strange_server);
    const auto address_in = [&](const Json& actions, const char* action) -> std::string {
        const auto found = actions.find(action);
        if (found == actions.end() || !found->is_object()) return {};
        const std::string address = field_text(*found, "href");
        if (!WebAddress::parse(address))
            throw Error(fmt::format("The answer of {} sends files to something that is no address.", where),
                        strange_server);
        return address;
    };
    std::vector<LargeUpload> uploads;
    for (const Json& object : *objects) {
        if (!object.is_object() || !is_hex_text(field_text(object, "oid"), 64))
            throw Error(fmt::format("The answer of {} lists something else than files.", where),
                        strange_server);
        LargeUpload upload{.hash = field_text(object, "oid")};
        if (const auto error = object.find("error"); error != object.end() && error->is_object())
            throw Error(fmt::format("The Hub does not take a file: {}.", field_text(*error, "message")),
                        "Check the size of the files and the permission of the token.");
        if (const auto actions = object.find("actions"); actions != object.end() && actions->is_object()) {
            upload.upload = address_in(*actions, "upload");
            upload.verify = address_in(*actions, "verify");
            const auto upload_action = actions->find("upload");
            const bool has_header = upload_action != actions->end() && upload_action->is_object() &&
                                    upload_action->contains("header") &&
                                    (*upload_action)["header"].is_object();
            const Json header = has_header ? (*upload_action)["header"] : Json::object();
            const std::string part_bytes = field_text(header, "chunk_size");
            if (!part_bytes.empty()) {
                const char* const last = part_bytes.data() + part_bytes.size();
                const auto [end, error] = std::from_chars(part_bytes.data(), last, upload.part_bytes);
                if (error != std::errc() || end != last || upload.part_bytes == 0)
                    throw Error(fmt::format("The answer of {} gives parts of {} bytes.", where, part_bytes),
                                strange_server);
                std::map<int, std::string> numbered;
                for (const auto& [key, address] : header.items()) {
                    int number = 0;
                    const auto [stop, wrong] = std::from_chars(key.data(), key.data() + key.size(), number);
                    if (wrong != std::errc() || stop != key.data() + key.size()) continue;
                    if (!address.is_string() || !WebAddress::parse(address.get<std::string>()))
                        throw Error(fmt::format("The answer of {} sends a part to no address.", where),
                                    strange_server);
                    numbered[number] = address.get<std::string>();
                }
                for (const auto& [number, address] : numbered) upload.parts.push_back(address);
            }
        }
        uploads.push_back(std::move(upload));
    }
    return uploads;
}

std::string parse_commit_address(std::string_view json, std::string_view where) {
    return field_text(upload_answer(json, where), "commitUrl");
}

}  // namespace drover
