#include "hub/web_file.h"

#include <fmt/format.h>

#include <charconv>

#include "core/byte_text.h"
#include "core/json.h"
#include "core/sha256.h"
#include "hub/cache.h"
#include "hub/download.h"
#include "hub/transfer_progress.h"

namespace drover {
namespace {

std::string sha256_text(std::string_view text) {
    return hex_text(Sha256().add(text).digest());
}

}  // namespace

std::filesystem::path fetch_web_file(HubClient& client, const std::string& url,
                                     const std::filesystem::path& folder) {
    const HttpAnswer head = client.send({.method = "HEAD", .url = url});
    if (!head.complete() || head.status != 200) client.fail(head, {}, url);
    const std::string_view length = head.header("content-length");
    std::uint64_t size = 0;
    const auto [end, error] = std::from_chars(length.data(), length.data() + length.size(), size);
    if (length.empty() || error != std::errc() || end != length.data() + length.size())
        throw Error(fmt::format("The server of {} does not say how long the file is.", url),
                    "Fetch it by other means, and name it.");
    const std::string version(head.header("etag"));
    const std::filesystem::path file =
        folder / (sha256_text(url) + (version.empty() ? "" : "." + sha256_text(version)));
    std::error_code failure;
    std::filesystem::create_directories(folder, failure);
    if (failure) fail_to_write(folder, failure.message());
    TransferProgress progress(fmt::format("Fetching {}", url.substr(url.rfind('/') + 1)), 1, size,
                              client.settings().shows_progress);
    download_file(client,
                  {.file = {.path = url, .size = size, .hash = ""},
                   .url = url,
                   // A weak one does not promise the same bytes.
                   .version = version.starts_with("W/") ? "" : version,
                   .destination = file,
                   .lock = file.string() + ".lock",
                   .partial = file},
                  [&](std::int64_t bytes) {
                      progress.add(bytes);
                      return true;
                  });
    progress.finish();
    const Json note{{"url", url}, {"etag", version.empty() ? Json() : Json(version)}};
    write_shared_file(file.string() + ".json", note.dump());
    return file;
}

}  // namespace drover
