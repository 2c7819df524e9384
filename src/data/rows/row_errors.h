#pragma once

#include <string_view>

namespace drover {

/// The Errors that several formats share. `place` is the file and the line or row.
[[noreturn]] void fail_invalid_utf8(std::string_view place, char byte);
/// `why` completes "the row has no text, because its \"text\" …".
[[noreturn]] void fail_null_text(std::string_view place, std::string_view column, std::string_view why);

}  // namespace drover
