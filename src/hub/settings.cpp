#include "hub/settings.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <initializer_list>

#include "core/error.h"
#include "core/text_file.h"
#include "core/words.h"
#include "hub/places.h"

namespace drover {
namespace {

namespace fs = std::filesystem;

std::string_view value_of(const char* name) {
    const char* value = std::getenv(name);
    return value == nullptr ? std::string_view() : std::string_view(value);
}

/// As huggingface_hub understands its variables.
bool is_true(const char* name) {
    const std::string word = lower_case(value_of(name));
    return word == "1" || word == "on" || word == "yes" || word == "true";
}

std::chrono::seconds seconds_of(const char* name, std::chrono::seconds otherwise) {
    const std::string_view text = value_of(name);
    if (text.empty()) return otherwise;
    int seconds = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
    if (error != std::errc() || end != text.data() + text.size() || seconds < 1)
        throw UsageError(fmt::format("The environment variable {} is \"{}\".", name, text),
                         "It must be a whole number of seconds.");
    return std::chrono::seconds(seconds);
}

}  // namespace

bool hub_is_offline() {
    return is_true("HF_HUB_OFFLINE") || is_true("TRANSFORMERS_OFFLINE");
}

bool datasets_are_offline() {
    return hub_is_offline() || is_true("HF_DATASETS_OFFLINE");
}

std::string clean_token(std::string_view token, std::string_view where) {
    const auto blank = [](char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; };
    while (!token.empty() && blank(token.front())) token.remove_prefix(1);
    while (!token.empty() && blank(token.back())) token.remove_suffix(1);
    if (std::any_of(token.begin(), token.end(), [](char c) { return c <= ' ' || c == 127; }))
        throw UsageError(fmt::format("The token of {} has characters that no token has.", where),
                         "Copy it again from the Hub's settings.");
    return std::string(token);
}

std::string stored_token() {
    for (const char* name : {"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"})
        if (std::string token = clean_token(value_of(name), name); !token.empty()) return token;
    const fs::path file = token_file();
    std::error_code ignored;
    return fs::is_regular_file(file, ignored) ? clean_token(read_text_file(file), file.string()) : "";
}

void store_token(std::string_view token) {
    const fs::path file = token_file();
    const auto fail = [&] {
        throw Error(
            fmt::format("The token cannot be written to {}: {}.", file.string(), std::strerror(errno)),
            "Check the folder's permissions, or name another file with HF_TOKEN_PATH.");
    };
    std::error_code ignored;
    fs::create_directories(file.parent_path(), ignored);
    const std::string beside = file.string() + fmt::format(".{}", getpid());
    const int descriptor = open(beside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (descriptor < 0) fail();
    const bool written = fchmod(descriptor, 0600) == 0 &&
                         write(descriptor, token.data(), token.size()) == static_cast<ssize_t>(token.size());
    const int reason = errno;
    close(descriptor);
    if (!written || rename(beside.c_str(), file.c_str()) != 0) {
        if (!written) errno = reason;
        unlink(beside.c_str());
        fail();
    }
}

bool remove_stored_token() {
    std::error_code failure;
    const bool removed = fs::remove(token_file(), failure);
    if (failure)
        throw Error(fmt::format("{} cannot be removed: {}.", token_file().string(), failure.message()),
                    "Check the folder's permissions.");
    return removed;
}

HubSettings HubSettings::from_environment(std::string_view token) {
    HubSettings settings;
    const std::string_view endpoint = value_of("HF_ENDPOINT");
    const auto address = WebAddress::parse(endpoint.empty() ? "https://huggingface.co" : endpoint);
    if (!address)
        throw UsageError(fmt::format("The environment variable HF_ENDPOINT is \"{}\".", endpoint),
                         "It must be an address such as https://huggingface.co.");
    settings.endpoint = *address;
    std::string& rest = settings.endpoint.rest;
    rest.erase(rest.find_last_not_of('/') + 1);  // paths are added to it
    settings.token = clean_token(token, "the command line");
    if (settings.token.empty() && !is_true("HF_HUB_DISABLE_IMPLICIT_TOKEN")) settings.token = stored_token();
    settings.offline = hub_is_offline();
    settings.shows_progress = !is_true("HF_HUB_DISABLE_PROGRESS_BARS");
    settings.links = !is_true("HF_HUB_DISABLE_SYMLINKS");
    settings.connect_limit = seconds_of("HF_HUB_ETAG_TIMEOUT", settings.connect_limit);
    settings.silence_limit = seconds_of("HF_HUB_DOWNLOAD_TIMEOUT", settings.silence_limit);
    return settings;
}

}  // namespace drover
