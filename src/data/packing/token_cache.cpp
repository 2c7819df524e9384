#include "data/packing/token_cache.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <cstdlib>
#include <optional>
#include <utility>

#include "core/content_hash.h"
#include "core/error.h"
#include "core/file_lock.h"
#include "data/packing/token_file_writer.h"

namespace drover {
namespace {

/// Distinguishes a file from one that later replaces it; empty if there is no file.
std::string identity(const std::filesystem::path& path) {
    struct stat status {};
    if (stat(path.c_str(), &status) != 0) return {};
    return fmt::format("{} {}.{} {}.{}", status.st_ino, status.st_mtim.tv_sec, status.st_mtim.tv_nsec,
                       status.st_ctim.tv_sec, status.st_ctim.tv_nsec);
}

/// The kind of the note with what was learned when a file was made, such as the number of tokens in no row.
constexpr const char* making_note = "dropped";

/// The file if it exists and is sound.
std::optional<TokenFile> open_sound(const std::filesystem::path& path, const FileNotes& notes) {
    if (!std::filesystem::exists(path)) return std::nullopt;
    try {
        return open_verified_token_file(path, notes);
    } catch (const Error&) {
        return std::nullopt;  // made again, as everything in the cache can be
    }
}

/// Empty if no variable tells where it could be.
std::filesystem::path find_cache_folder() {
    const auto variable = [](const char* name) -> std::filesystem::path {
        const char* value = std::getenv(name);
        return value == nullptr ? "" : value;
    };
    if (const auto own = variable("DROVER_CACHE"); !own.empty()) return own;
    if (const auto user = variable("XDG_CACHE_HOME"); !user.empty()) return user / "drover";
    if (const auto home = variable("HOME"); !home.empty()) return home / ".cache" / "drover";
    return {};
}

}  // namespace

std::filesystem::path default_cache_folder() {
    if (std::filesystem::path folder = find_cache_folder(); !folder.empty()) return folder;
    throw Error("There is no folder for the cache: neither DROVER_CACHE nor HOME is set.",
                "Set DROVER_CACHE to a folder.");
}

std::filesystem::path cache_notes_folder(const std::filesystem::path& folder) {
    return folder / "files";
}

std::filesystem::path default_notes_folder() {
    const std::filesystem::path folder = find_cache_folder();
    return folder.empty() ? folder : cache_notes_folder(folder);
}

std::string token_cache_key(const RowDataset& dataset, const Tokenizer& tokenizer,
                            const PackingOptions& options) {
    constexpr std::string_view format = "token file 1";
    const std::int64_t workers = options.packing == Packing::hf ? options.workers : 1;
    return ContentHash()
        .add(format)
        .add(dataset.fingerprint())
        .add(tokenizer.fingerprint())
        .add(packing_name(options.packing))
        .add(std::to_string(options.block_size))
        .add(std::to_string(workers))
        .add(options.max_rows ? std::to_string(*options.max_rows) : "all")
        .hex();
}

TokenFileHeader write_token_file(const std::filesystem::path& path, const RowDataset& dataset,
                                 std::shared_ptr<const Tokenizer> tokenizer, const PackingOptions& options,
                                 std::size_t threads, const ReportProgress& report) {
    TokenFileWriter writer(path, *tokenizer, options);
    TokenStream stream(dataset, tokenizer, options, threads);
    std::vector<TokenId> row;
    while (stream.next(row)) {
        writer.add(row);
        if (report) report(stream.progress());
    }
    const TokenStreamProgress& total = stream.progress();
    if (report) report(total);
    if (total.rows == 0)
        throw Error(total.text_rows == 0
                        ? std::string("The dataset has no rows of text.")
                        : fmt::format("The {} rows of text gave {} tokens and not one block of {}.",
                                      total.text_rows, total.tokens, options.block_size),
                    total.text_rows == 0 ? "Check the input files."
                                         : "Use a smaller block size, more text, or lossless packing.");
    return writer.finish();
}

TokenCache::TokenCache(std::filesystem::path folder)
    : folder_(std::move(folder)), notes_(cache_notes_folder(folder_)) {
    std::error_code failure, unknown;
    std::filesystem::create_directories(folder_, failure);
    if (!std::filesystem::is_directory(folder_, unknown))
        throw Error(
            fmt::format("The cache folder {} cannot be used: {}.", folder_.string(), failure.message()),
            "Set DROVER_CACHE to a folder that can be written.");
}

TokenCache::Made TokenCache::get(const std::string& key, bool overwrite,
                                 const std::function<std::string(const std::filesystem::path& path)>& make) {
    const std::filesystem::path path = folder_ / (key + ".tokens");
    const std::string found = identity(path);
    const auto find = [&]() -> std::optional<Made> {
        std::optional<TokenFile> file = open_sound(path, notes_);
        if (!file) return std::nullopt;
        return Made{.file = std::move(*file), .note = notes_.remember(path, making_note, [] { return ""; })};
    };
    if (!overwrite)
        if (std::optional<Made> entry = find()) return std::move(*entry);

    const FileLock lock(folder_ / (key + ".lock"));
    if (!overwrite || identity(path) != found)
        if (std::optional<Made> entry = find()) return std::move(*entry);
    const std::string note = make(path);
    notes_.note(path, verified_note, {});
    notes_.note(path, making_note, note);
    return {.file = TokenFile(path), .made = true, .note = note};
}

TokenCache::Entry TokenCache::get(const RowDataset& dataset, std::shared_ptr<const Tokenizer> tokenizer,
                                  const PackingOptions& options, std::size_t threads, bool overwrite,
                                  const ReportProgress& report) {
    Made found = get(token_cache_key(dataset, *tokenizer, options), overwrite, [&](const auto& path) {
        std::int64_t dropped = 0;
        write_token_file(path, dataset, tokenizer, options, threads,
                         [&](const TokenStreamProgress& progress) {
                             dropped = progress.dropped;
                             if (report) report(progress);
                         });
        return std::to_string(dropped);
    });
    // If the note was lost, the number is unknown.
    return {.file = std::move(found.file), .made = found.made, .dropped = std::atoll(found.note.c_str())};
}

}  // namespace drover
