#include "io/checkpoint_manifest.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/content_hash.h"
#include "core/error.h"
#include "core/python_json.h"
#include "core/text_file.h"
#include "io/model_folder.h"

namespace drover {
namespace {

namespace fs = std::filesystem;

constexpr const char* checksum_key = "checksum";

std::string checksum_of(const Json& without_checksum) {
    return ContentHash().add_bytes(python_json(without_checksum, 2)).hex();
}

bool is_hash(const std::string& text) {
    return text.size() == 32 && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

/// Absent when the entry is invalid.
std::optional<FileDigest> parse_digest(const std::string& name, const Json& json) {
    const FileDigest digest{.bytes = json.at("bytes").get<std::uint64_t>(),
                            .hash = json.at("xxh3_128").get<std::string>()};
    if (!is_plain_path(name) || !json.at("bytes").is_number_unsigned() || !is_hash(digest.hash))
        return std::nullopt;
    return digest;
}

}  // namespace

std::string CheckpointManifest::text() const {
    Json json = {{"version", version}, {"saved_at", saved_at}, {"state", state}, {"files", Json::object()}};
    for (const auto& [name, digest] : files)
        json["files"][name] = {{"bytes", digest.bytes}, {"xxh3_128", digest.hash}};
    json[checksum_key] = checksum_of(json);
    return python_json(json, 2) + "\n";
}

CheckpointManifest CheckpointManifest::parse(std::string_view text, std::string_view where) {
    CheckpointManifest manifest;
    const auto refuse = [&](std::string_view reason) {
        throw Error(fmt::format("{} is not the state of a checkpoint: {}.", where, reason),
                    "Resume from another checkpoint.");
    };
    Json json = parse_python_json(text, where);
    try {
        if (!json.is_object()) refuse("it is not an object");
        if (json.at("version") != version)
            refuse(fmt::format("its version is {}, and this program reads {}", json.at("version").dump(),
                               version));
        const std::string checksum = json.at(checksum_key).get<std::string>();
        json.erase(checksum_key);
        if (checksum_of(json) != checksum) refuse("it was changed after it was written");
        manifest.state = json.at("state");
        if (!manifest.state.is_object()) refuse("its state is not an object");
        manifest.saved_at = json.at("saved_at").get<std::int64_t>();
        for (const auto& [name, entry] : json.at("files").items()) {
            const std::optional<FileDigest> digest = parse_digest(name, entry);
            if (!digest) refuse(fmt::format("its entry for the file \"{}\" is invalid", name));
            manifest.files[name] = *digest;
        }
    } catch (const nlohmann::json::exception& failure) {
        refuse(failure.what());
    }
    return manifest;
}

CheckpointManifest CheckpointManifest::read(const fs::path& folder) {
    const fs::path path = folder / file_name;
    return parse(read_text_file(path), path.string());
}

std::optional<std::string> find_damage(const fs::path& folder) {
    try {
        if (!fs::exists(folder / CheckpointManifest::file_name))
            return fmt::format("{} is missing", CheckpointManifest::file_name);
        for (const auto& [name, digest] : CheckpointManifest::read(folder).files) {
            std::error_code failure;
            if (!fs::is_regular_file(folder / name, failure)) return fmt::format("{} is missing", name);
            const std::uint64_t bytes = fs::file_size(folder / name);
            if (bytes != digest.bytes)
                return fmt::format("{} has {} bytes instead of {}", name, bytes, digest.bytes);
            if (digest_file(folder / name).hash != digest.hash)
                return fmt::format("{} was changed after it was written (its checksum differs)", name);
        }
    } catch (const Error& error) {
        std::string reason = error.cause();
        if (reason.ends_with('.')) reason.pop_back();
        return reason;
    } catch (const fs::filesystem_error& error) {
        return fmt::format("it cannot be read ({})", error.code().message());
    }
    return std::nullopt;
}

}  // namespace drover
