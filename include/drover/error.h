#pragma once

#include <exception>
#include <optional>
#include <string>

#include "drover/export.h"

namespace drover {
DROVER_INLINE_NAMESPACE v1 {
    /// The sentences of an error, for programs that show or translate them separately.
    struct ErrorText {
        std::string cause;
        std::string remedy;     ///< may be empty
        bool is_usage = false;  ///< an argument is unknown, or contradicts another
    };

    /// Nothing for exceptions that are not the library's own.
    DROVER_EXPORT std::optional<ErrorText> error_text(const std::exception& error);

}  // namespace v1
}  // namespace drover
