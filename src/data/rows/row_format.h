#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace drover {

enum class RowFormat { text, json, csv, tsv, parquet, arrow, tokens, wikicorpus };

/// The format according to a file's name, with or without a final .gz or .zst (.txt, .json, .jsonl, .ndjson,
/// .csv, .tsv, .parquet, .arrow, .tokens; .tgz and .tar.gz: raw Wikicorpus); nothing for other names.
std::optional<RowFormat> known_format(const std::filesystem::path& path);

/// The same; for other names an Error that lists the known ones.
RowFormat format_of(const std::filesystem::path& path);

std::string_view format_name(RowFormat format);

}  // namespace drover
