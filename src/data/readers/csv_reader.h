#pragma once

#include <memory>
#include <string>
#include <vector>

#include "data/readers/byte_stream.h"
#include "data/readers/file_reader.h"

namespace drover {

/// The names in the first record, as pandas makes them: an empty name becomes "Unnamed: <position>", a
/// repeated one gets ".1", ".2", … Empty when the file holds no record.
std::vector<std::string> csv_columns(std::unique_ptr<ByteStream> stream, const std::string& name,
                                     char delimiter);

/// The cells of one column, below the header; see CsvRecords for how a file is split. Error for a row without
/// text: an empty cell, one that the row is too short for, and one of the words that pandas takes for a
/// missing value, in quotes or not. Error for a row with more cells than the header.
std::unique_ptr<FileReader> make_csv_reader(std::unique_ptr<ByteStream> stream, std::string name,
                                            const std::string& column, char delimiter);

/// Whether pandas' read_csv takes a cell of this content for a missing value.
bool is_missing_value(std::string_view cell);

}  // namespace drover
