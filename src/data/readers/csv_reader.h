#pragma once

#include <memory>
#include <string>
#include <vector>

#include "data/readers/byte_stream.h"
#include "data/readers/file_reader.h"

namespace drover {

/// The names in the first record, as pandas names columns: an empty name becomes "Unnamed: <position>", a
/// repeated one gets ".1", ".2", … Empty when the file holds no record.
std::vector<std::string> csv_columns(std::unique_ptr<ByteStream> stream, const std::string& name,
                                     char delimiter);

/// The cells of one column, below the header; see CsvRecords for how a file is split. Error for a row without
/// text: an empty cell, a row that is too short, or one of the words that pandas treats as a missing value,
/// quoted or not. Error for a row with more cells than the header.
std::unique_ptr<FileReader> make_csv_reader(std::unique_ptr<ByteStream> stream, std::string name,
                                            const std::string& column, char delimiter);

/// The cells of these columns as JSON objects of strings, with null for a cell without text.
std::unique_ptr<FileReader> make_csv_object_reader(std::unique_ptr<ByteStream> stream, std::string name,
                                                   std::vector<std::string> columns, char delimiter);

/// Whether pandas' read_csv treats such a cell as a missing value.
bool is_missing_value(std::string_view cell);

}  // namespace drover
