#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "data/readers/byte_stream.h"
#include "data/readers/file_reader.h"

namespace drover {

/// The keys of the first rows (in 10 MiB of the file, as in the datasets library) in order of first
/// appearance; only "text" for a list of strings.
std::vector<std::string> json_columns(std::unique_ptr<ByteStream> stream, const std::string& name,
                                      const std::string& field);

/// The strings under the key `column` of JSON rows (see JsonRows), or the members of a list of strings. Error
/// for a row without the key, or with anything but a string under it.
std::unique_ptr<FileReader> make_json_reader(std::unique_ptr<ByteStream> stream, std::string name,
                                             std::string column, const std::string& field);

/// The JSON rows themselves, as they are in the file; a string of a list of strings becomes {"text": …}.
std::unique_ptr<FileReader> make_json_object_reader(std::unique_ptr<ByteStream> stream, std::string name,
                                                    const std::string& field);

}  // namespace drover
