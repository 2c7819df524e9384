#pragma once

#include <memory>
#include <string>
#include <vector>

#include "data/readers/byte_stream.h"
#include "data/readers/file_reader.h"

namespace drover {

/// The columns: id, title, text.
const std::vector<std::string>& wikicorpus_columns();

/// The articles of a raw Wikicorpus archive (raw.en.tgz and its like; Latin-1 files), in the archive's order,
/// as the loading script of the datasets library makes them: the lines between `<doc id…>` and
/// `ENDOFARTICLE`, without
/// `</doc>`, each followed by an empty line, and without white space around the whole. An article that a file
/// breaks off is dropped. `column` is one of wikicorpus_columns().
std::unique_ptr<FileReader> make_wikicorpus_reader(std::unique_ptr<ByteStream> stream, std::string name,
                                                   const std::string& column);

}  // namespace drover
