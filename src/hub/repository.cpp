#include "hub/repository.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/byte_text.h"
#include "core/error.h"
#include "core/json.h"
#include "hub/web_address.h"

namespace drover {
namespace {

std::string_view plural(RepositoryKind kind) {
    return kind == RepositoryKind::model ? "models" : "datasets";
}

Json parse_answer(std::string_view text, std::string_view where) {
    Json json = Json::parse(text, nullptr, false);
    if (json.is_discarded()) throw Error(fmt::format("The answer of {} is not JSON.", where), strange_server);
    return json;
}

/// A non-negative number of an object; Error otherwise.
std::uint64_t size_in(const Json& object, const char* key, std::string_view where) {
    const auto found = object.find(key);
    if (found == object.end() || !found->is_number_unsigned())
        throw Error(fmt::format("{} lists a file without its {}.", where, key), strange_server);
    return found->get<std::uint64_t>();
}

std::string text_in(const Json& object, const char* key) {
    const auto found = object.find(key);
    return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

void add_file(RepositoryListing& listing, RepositoryFile file, std::string_view where) {
    if (!is_safe_file_path(file.path))
        throw Error(fmt::format("{} lists a file named \"{}\", which could be written outside its folder.",
                                where, url_quoted(file.path, "/ ")),
                    "Do not trust this repository; nothing was fetched.");
    if (!is_hex_text(file.hash, 40) && !is_hex_text(file.hash, 64))
        throw Error(fmt::format("{} lists {} without a checksum.", where, file.path), strange_server);
    listing.files.push_back(std::move(file));
}

void finish(RepositoryListing& listing, std::string_view where) {
    std::sort(listing.files.begin(), listing.files.end(),
              [](const RepositoryFile& a, const RepositoryFile& b) { return a.path < b.path; });
    const auto twice =
        std::adjacent_find(listing.files.begin(), listing.files.end(),
                           [](const RepositoryFile& a, const RepositoryFile& b) { return a.path == b.path; });
    if (twice != listing.files.end())
        throw Error(fmt::format("{} lists {} twice.", where, twice->path), strange_server);
    const auto is_folder = std::find_if(listing.files.begin(), listing.files.end(), [&](const auto& file) {
        const auto below = std::lower_bound(
            listing.files.begin(), listing.files.end(), file.path + "/",
            [](const RepositoryFile& other, const std::string& path) { return other.path < path; });
        return below != listing.files.end() && below->path.starts_with(file.path + "/");
    });
    if (is_folder != listing.files.end())
        throw Error(fmt::format("{} lists {} as a file and as a folder.", where, is_folder->path),
                    strange_server);
}

}  // namespace

std::string Repository::shown() const {
    const std::string name = fmt::format("{} {}", kind == RepositoryKind::model ? "model" : "dataset", id);
    return revision == "main" ? name : fmt::format("{} (revision {})", name, revision);
}

std::string Repository::folder_name() const {
    std::string name = fmt::format("{}--{}", plural(kind), id);
    if (const std::size_t slash = name.find('/'); slash != std::string::npos) name.replace(slash, 1, "--");
    return name;
}

std::string Repository::api_path() const {
    return fmt::format("/api/{}/{}", plural(kind), id);
}

std::string Repository::file_path(std::string_view commit, std::string_view path) const {
    return fmt::format("{}/{}/resolve/{}/{}", kind == RepositoryKind::dataset ? "/datasets" : "", id,
                       url_quoted(commit, ""), url_quoted(path));
}

bool is_hub_id(std::string_view id) {
    const auto allowed = [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
               c == '_' || c == '.' || c == '/';
    };
    return !id.empty() && id.size() <= 96 && std::all_of(id.begin(), id.end(), allowed) &&
           std::count(id.begin(), id.end(), '/') <= 1 && id.front() != '/' && id.back() != '/' &&
           id.front() != '.' && id.find("--") == std::string_view::npos &&
           id.find("..") == std::string_view::npos && id.find("/.") == std::string_view::npos;
}

bool is_safe_file_path(std::string_view path) {
    if (path.empty() || path.size() > 4000 || path.back() == '/') return false;
    if (std::any_of(path.begin(), path.end(),
                    [](char c) { return static_cast<unsigned char>(c) < 32 || c == 127 || c == '\\'; }))
        return false;
    while (!path.empty()) {
        const std::size_t end = std::min(path.find('/'), path.size());
        const std::string_view part = path.substr(0, end);
        if (part.empty() || part == "." || part == ".." || part.size() > 255) return false;
        path.remove_prefix(std::min(end + 1, path.size()));
    }
    return true;
}

const RepositoryFile* RepositoryListing::find(std::string_view path) const {
    const auto found = std::find_if(files.begin(), files.end(),
                                    [&](const RepositoryFile& file) { return file.path == path; });
    return found == files.end() ? nullptr : &*found;
}

std::string parse_commit(std::string_view json, std::string_view where) {
    const Json answer = parse_answer(json, where);
    const std::string commit = answer.is_object() ? text_in(answer, "sha") : "";
    if (!is_hex_text(commit, 40))
        throw Error(fmt::format("The answer of {} names no commit.", where), strange_server);
    return commit;
}

void parse_tree_page(std::string_view json, std::string_view where, RepositoryListing& listing) {
    const Json page = parse_answer(json, where);
    if (!page.is_array()) throw Error(fmt::format("{} gives no list of files.", where), strange_server);
    for (const Json& entry : page) {
        if (!entry.is_object())
            throw Error(fmt::format("{} gives a list of something else than files.", where), strange_server);
        if (text_in(entry, "type") != "file") continue;
        const auto large = entry.find("lfs");
        const bool is_large = large != entry.end() && large->is_object();
        const Json& source = is_large ? *large : entry;
        add_file(listing, {text_in(entry, "path"), size_in(source, "size", where), text_in(source, "oid")},
                 where);
    }
    finish(listing, where);
}

std::string next_page(std::string_view link_header) {
    while (!link_header.empty()) {
        const std::size_t open = link_header.find('<');
        const std::size_t close = link_header.find('>', open == std::string_view::npos ? 0 : open);
        if (open == std::string_view::npos || close == std::string_view::npos) return {};
        const std::string_view address = link_header.substr(open + 1, close - open - 1);
        link_header.remove_prefix(close + 1);
        const std::string_view marks = link_header.substr(0, link_header.find('<'));
        if (marks.find("rel=\"next\"") != std::string_view::npos ||
            marks.find("rel=next") != std::string_view::npos)
            return std::string(address);
    }
    return {};
}

std::string listing_text(const RepositoryListing& listing) {
    Json files = Json::object();
    for (const RepositoryFile& file : listing.files) {
        // huggingface_hub knows git's name of a large file's pointer, which nobody needs.
        Json entry{{"size", file.size}, {"blob_id", file.hash}};
        if (file.is_large()) {
            entry["lfs_sha256"] = file.hash;
            entry["lfs_size"] = file.size;
        }
        files[file.path] = std::move(entry);
    }
    return Json{{"format_version", 1}, {"files", std::move(files)}}.dump(1);
}

RepositoryListing parse_listing(std::string_view json, std::string_view commit, std::string_view where) {
    const Json content = parse_answer(json, where);
    RepositoryListing listing{.commit = std::string(commit), .files = {}};
    const auto files = content.is_object() ? content.find("files") : content.end();
    if (!content.is_object() || files == content.end() || !files->is_object() ||
        content.value("format_version", Json()) != Json(1))
        throw Error(fmt::format("{} is no listing of files.", where), "Remove it; it is made again.");
    for (const auto& [path, entry] : files->items()) {
        if (!entry.is_object())
            throw Error(fmt::format("{} is no listing of files.", where), "Remove it; it is made again.");
        const bool is_large = !text_in(entry, "lfs_sha256").empty();
        add_file(listing,
                 {path, size_in(entry, is_large ? "lfs_size" : "size", where),
                  text_in(entry, is_large ? "lfs_sha256" : "blob_id")},
                 where);
    }
    finish(listing, where);
    return listing;
}

}  // namespace drover
