#include "data/readers/file_reader.h"

#include <fmt/format.h>

#include "core/error.h"

namespace drover {

void fail_invalid_utf8(std::string_view place, char byte) {
    throw Error(fmt::format("{}: byte 0x{:02x} is not valid UTF-8.", place, static_cast<unsigned char>(byte)),
                "Convert the file to UTF-8, for example with iconv.");
}

void fail_null_text(std::string_view place, std::string_view column, std::string_view why) {
    throw Error(fmt::format("{}: the row has no text, because its \"{}\" {}.", place, column, why),
                "Remove such rows, or name another column.");
}

}  // namespace drover
