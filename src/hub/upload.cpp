#include "hub/upload.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <map>

#include "core/byte_text.h"
#include "core/error.h"
#include "core/json.h"
#include "core/text_file.h"
#include "hub/blob_hash.h"
#include "hub/transfer_progress.h"

namespace drover {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t files_of_request = 256;
constexpr std::size_t sample_bytes = 512;

bool succeeded(const HttpAnswer& answer) {
    return answer.complete() && answer.status >= 200 && answer.status <= 299;
}

[[noreturn]] void fail_upload(const HubClient& client, const HttpAnswer& answer, const std::string& id) {
    using Reason = HubError::Reason;
    const std::string hub = client.settings().endpoint.origin();
    if (!answer.complete())
        throw HubError(Reason::unreachable,
                       fmt::format("The upload to {} at {} failed: {}.", id, hub, answer.failure),
                       "Check the network and its proxy (https_proxy), and upload the folder again.");
    std::string words = server_words(answer);
    if (!words.empty()) words.insert(0, ", ");
    if (answer.status == 401 || answer.status == 403)
        throw HubError(Reason::refused,
                       fmt::format("{} refuses uploads to {} ({}{}).", hub, id, answer.status, words),
                       "Use a token that may write there: `drover login`, HF_TOKEN or --hub_token.");
    throw HubError(Reason::other,
                   fmt::format("The upload to {} failed: {} answers {}{}.", id, hub, answer.status, words),
                   "Try again later; what has been sent is not sent again.");
}

HttpRequest json_request(std::string url, const Json& body, std::string_view type = "application/json") {
    return {.method = "POST",
            .url = std::move(url),
            .headers = {{"Content-Type", std::string(type)}},
            .body = body.dump()};
}

/// A file with what the Hub asks about it.
struct Sending {
    UploadFile file;
    std::uint64_t size = 0;
    UploadMode mode{};
    std::string hash{};  ///< its name on the Hub
};

std::string first_bytes(const fs::path& file) {
    std::ifstream in(file, std::ios::binary);
    std::string sample(sample_bytes, '\0');
    in.read(sample.data(), static_cast<std::streamsize>(sample.size()));
    sample.resize(static_cast<std::size_t>(in.gcount()));
    return sample;
}

class Upload {
  public:
    Upload(HubClient& client, const Repository& repository, std::function<bool()> go_on)
        : client_(client), repository_(repository), go_on_(std::move(go_on)) {}

    std::string send(std::vector<UploadFile> files, const std::string& message) {
        for (UploadFile& file : files) {
            std::error_code failure;
            const std::uint64_t size = fs::file_size(file.source, failure);
            if (failure)
                throw Error(fmt::format("{} cannot be sent: {}.", file.source.string(), failure.message()),
                            "Check the file.");
            sending_.push_back({.file = std::move(file), .size = size});
        }
        ask_modes();
        std::erase_if(sending_, [](const Sending& file) {
            return file.mode.is_ignored || file.mode.there == file.hash;
        });
        if (sending_.empty()) return {};
        send_large();
        return commit(message);
    }

  private:
    void check_going() const {
        if (go_on_ && !go_on_()) throw Error("The upload was ended.", "Upload the folder again.");
    }

    std::string api(std::string_view what) const {
        return client_.address(
            fmt::format("{}/{}/{}", repository_.api_path(), what, url_quoted(repository_.revision, "")));
    }

    HttpAnswer post(const HttpRequest& request) {
        check_going();
        HttpAnswer answer = client_.send(request);
        if (!succeeded(answer)) fail_upload(client_, answer, repository_.id);
        return answer;
    }

    void ask_modes() {
        const std::string url = api("preupload");
        std::map<std::string, UploadMode> modes;
        for (std::size_t begin = 0; begin < sending_.size(); begin += files_of_request) {
            Json files = Json::array();
            for (std::size_t i = begin; i < std::min(begin + files_of_request, sending_.size()); ++i)
                files.push_back({{"path", sending_[i].file.path},
                                 {"sample", base64_text(first_bytes(sending_[i].file.source))},
                                 {"size", sending_[i].size}});
            for (UploadMode& mode :
                 parse_upload_modes(post(json_request(url, {{"files", std::move(files)}})).body, url))
                modes[mode.path] = mode;
        }
        for (Sending& file : sending_) {
            const auto found = modes.find(file.file.path);
            if (found == modes.end())
                throw Error(fmt::format("{} says nothing about {}.", url, file.file.path), strange_server);
            file.mode = found->second;
            if (file.size == 0) file.mode.is_large = false;  // an empty file cannot be stored as a large one
            check_going();
            file.hash = file.mode.is_large ? file_sha256(file.file.source)
                                           : git_blob_name(read_text_file(file.file.source));
        }
    }

    void send_large() {
        std::vector<const Sending*> large;
        std::uint64_t bytes = 0;
        for (const Sending& file : sending_)
            if (file.mode.is_large) {
                large.push_back(&file);
                bytes += file.size;
            }
        TransferProgress progress(fmt::format("Sending {}", repository_.id), large.size(), bytes,
                                  client_.settings().shows_progress);
        const std::string url =
            client_.address(fmt::format("/{}.git/info/lfs/objects/batch", repository_.id));
        for (std::size_t begin = 0; begin < large.size(); begin += files_of_request) {
            const std::size_t end = std::min(begin + files_of_request, large.size());
            Json objects = Json::array();
            for (std::size_t i = begin; i < end; ++i)
                objects.push_back({{"oid", large[i]->hash}, {"size", large[i]->size}});
            HttpRequest request = json_request(url,
                                               {{"operation", "upload"},
                                                {"transfers", {"basic", "multipart"}},
                                                {"objects", std::move(objects)},
                                                {"hash_algo", "sha256"},
                                                {"ref", {{"name", repository_.revision}}}},
                                               "application/vnd.git-lfs+json");
            request.headers.emplace_back("Accept", "application/vnd.git-lfs+json");
            const std::vector<LargeUpload> uploads = parse_large_uploads(post(request).body, url);
            for (std::size_t i = begin; i < end; ++i) {
                const auto found =
                    std::find_if(uploads.begin(), uploads.end(),
                                 [&](const LargeUpload& upload) { return upload.hash == large[i]->hash; });
                if (found == uploads.end())
                    throw Error(fmt::format("{} says nothing about {}.", url, large[i]->file.path),
                                strange_server);
                send_one(*large[i], *found, progress);
                progress.file_done();
            }
        }
        progress.finish();
    }

    /// PUT of a part of a file; returns the tag that the server gives it.
    std::string put(const std::string& url, const FilePart& part, TransferProgress& progress) {
        std::uint64_t counted = 0;
        HttpRequest request{.method = "PUT", .url = url, .file = part};
        request.sent = [&](std::uint64_t sent) {
            progress.add(static_cast<std::int64_t>(sent) - static_cast<std::int64_t>(counted));
            counted = sent;
            return !go_on_ || go_on_();
        };
        const HttpAnswer answer = client_.send(request);
        check_going();
        if (!succeeded(answer)) fail_upload(client_, answer, repository_.id);
        return std::string(answer.header("etag"));
    }

    void send_one(const Sending& file, const LargeUpload& upload, TransferProgress& progress) {
        if (upload.upload.empty()) {
            progress.add_earlier(static_cast<std::int64_t>(file.size));
            return;
        }
        const fs::path& source = file.file.source;
        if (upload.part_bytes == 0) {
            put(upload.upload, {.file = source, .offset = 0, .size = file.size}, progress);
        } else {
            const std::uint64_t count = (file.size + upload.part_bytes - 1) / upload.part_bytes;
            if (count != upload.parts.size())
                throw Error(fmt::format("The Hub gives {} addresses for the {} parts of {}.",
                                        upload.parts.size(), count, file.file.path),
                            strange_server);
            Json parts = Json::array();
            for (std::uint64_t i = 0; i < count; ++i) {
                const std::uint64_t offset = i * upload.part_bytes;
                parts.push_back({{"partNumber", i + 1},
                                 {"etag", put(upload.parts[i],
                                              {.file = source,
                                               .offset = offset,
                                               .size = std::min(upload.part_bytes, file.size - offset)},
                                              progress)}});
            }
            post(json_request(upload.upload, {{"oid", file.hash}, {"parts", std::move(parts)}},
                              "application/vnd.git-lfs+json"));
        }
        if (!upload.verify.empty())
            post(json_request(upload.verify, {{"oid", file.hash}, {"size", file.size}}));
    }

    std::string commit(const std::string& message) {
        std::string lines =
            Json{{"key", "header"}, {"value", {{"summary", message}, {"description", ""}}}}.dump() + "\n";
        for (const Sending& file : sending_) {
            Json value{{"path", file.file.path}};
            if (file.mode.is_large) {
                value.update({{"algo", "sha256"}, {"oid", file.hash}, {"size", file.size}});
            } else {
                value["content"] = base64_text(read_text_file(file.file.source));
                value["encoding"] = "base64";
            }
            lines +=
                Json{{"key", file.mode.is_large ? "lfsFile" : "file"}, {"value", std::move(value)}}.dump();
            lines.push_back('\n');
        }
        check_going();
        const HttpRequest request{.method = "POST",
                                  .url = api("commit"),
                                  .headers = {{"Content-Type", "application/x-ndjson"}},
                                  .body = std::move(lines)};
        // A commit whose answer is lost may have been made: only what was refused is sent again.
        BackOff back_off(client_.settings().retry);
        HttpAnswer answer = client_.send_once(request);
        while (answer.complete() && (answer.status == 429 || answer.status == 503) && back_off.again(answer))
            answer = client_.send_once(request);
        if (!succeeded(answer)) fail_upload(client_, answer, repository_.id);
        return parse_commit_address(answer.body, request.url);
    }

    HubClient& client_;
    const Repository& repository_;
    std::function<bool()> go_on_;
    std::vector<Sending> sending_;
};

}  // namespace

std::string make_model_repository(HubClient& client, const std::string& id, std::optional<bool> is_private) {
    const std::size_t slash = id.find('/');
    const std::string user = client.user_name();
    const std::string owner = slash == std::string::npos ? user : id.substr(0, slash);
    const std::string name = slash == std::string::npos ? id : id.substr(slash + 1);
    const std::string full = fmt::format("{}/{}", owner, name);
    if (!is_hub_id(full))
        throw UsageError(fmt::format("\"{}\" cannot be the name of a repository.", full),
                         "Name one with --hub_model_id owner/name.");
    Json wanted{{"name", name}, {"type", "model"}};
    if (owner != user) wanted["organization"] = owner;
    if (is_private) wanted["private"] = *is_private;
    const HttpAnswer answer = client.send(json_request(client.address("/api/repos/create"), wanted));
    if (succeeded(answer) || (answer.complete() && answer.status == 409)) return full;
    if (answer.complete() && (answer.status == 401 || answer.status == 403)) {
        // The token may not make repositories, but perhaps there is one that it may write to.
        try {
            client.list({.id = full});
            return full;
        } catch (const HubError&) {
        }
    }
    fail_upload(client, answer, full);
}

void make_branch(HubClient& client, const Repository& repository) {
    if (repository.revision == "main") return;
    const HttpAnswer answer =
        client.send(json_request(client.address(fmt::format("{}/branch/{}", repository.api_path(),
                                                            url_quoted(repository.revision, ""))),
                                 Json::object()));
    if (!succeeded(answer) && !(answer.complete() && answer.status == 409))
        fail_upload(client, answer, repository.id);
}

std::string upload_files(HubClient& client, const Repository& repository, std::vector<UploadFile> files,
                         const std::string& message, const std::function<bool()>& go_on) {
    return Upload(client, repository, go_on).send(std::move(files), message);
}

}  // namespace drover
