#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "data/readers/file_reader.h"

namespace drover {

/// A string column of a parquet or Arrow file. Error for a null and for text that is not UTF-8.
std::unique_ptr<FileReader> make_arrow_reader(const std::filesystem::path& path, const std::string& column);

/// These columns of a parquet or Arrow file, with lists and structs of any depth, as JSON objects.
std::unique_ptr<FileReader> make_arrow_object_reader(const std::filesystem::path& path,
                                                     const std::vector<std::string>& columns);

}  // namespace drover
