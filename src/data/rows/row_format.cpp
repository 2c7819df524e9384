#include "data/rows/row_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

#include "core/error.h"

namespace drover {

std::optional<RowFormat> known_format(const std::filesystem::path& path) {
    constexpr std::array<std::pair<std::string_view, RowFormat>, 9> suffixes{{
        {".txt", RowFormat::text},
        {".json", RowFormat::json},
        {".jsonl", RowFormat::json},
        {".ndjson", RowFormat::json},
        {".csv", RowFormat::csv},
        {".tsv", RowFormat::tsv},
        {".parquet", RowFormat::parquet},
        {".arrow", RowFormat::arrow},
        {".tokens", RowFormat::tokens},
    }};
    std::string name = path.filename().string();
    std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
    if (name.ends_with(".tgz") || name.ends_with(".tar.gz")) return RowFormat::wikicorpus;
    bool compressed = false;
    for (const std::string_view ending : {".gz", ".zst"}) {
        if (!compressed && name.ends_with(ending)) {
            name.resize(name.size() - ending.size());
            compressed = true;
        }
    }
    for (const auto& [suffix, format] : suffixes)
        if (name.ends_with(suffix) &&
            !(compressed &&
              (format == RowFormat::parquet || format == RowFormat::arrow || format == RowFormat::tokens)))
            return format;
    return std::nullopt;
}

RowFormat format_of(const std::filesystem::path& path) {
    if (const auto format = known_format(path)) return *format;
    throw Error(
        fmt::format("The name of {} does not end like a format that can be read.", path.string()),
        "Use .txt, .json, .jsonl, .ndjson, .csv or .tsv (also with .gz or .zst after it), .parquet, .arrow, or "
        "the raw Wikicorpus as .tgz.");
}

std::string_view format_name(RowFormat format) {
    switch (format) {
        case RowFormat::text:
            return "text";
        case RowFormat::json:
            return "json";
        case RowFormat::csv:
            return "csv";
        case RowFormat::tsv:
            return "tsv";
        case RowFormat::parquet:
            return "parquet";
        case RowFormat::arrow:
            return "arrow";
        case RowFormat::tokens:
            return "token";
        case RowFormat::wikicorpus:
            return "wikicorpus";
    }
    bug("an unknown row format");
}

}  // namespace drover
