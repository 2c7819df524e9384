#pragma once

#include <memory>
#include <string>

#include "data/readers/byte_stream.h"
#include "data/readers/file_reader.h"

namespace drover {

/// One row per line of UTF-8 text. "\r\n" and "\r" count as "\n", no other character ends a line, and the
/// last line need not have one. Rows end in "\n" with `keep_linebreaks` and have no line break without it. A
/// byte-order mark is part of the first row. `name` is the file's name in errors.
std::unique_ptr<FileReader> make_text_reader(std::unique_ptr<ByteStream> stream, std::string name,
                                             bool keep_linebreaks);

}  // namespace drover
