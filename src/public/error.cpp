#include "drover/error.h"

#include "core/error.h"

namespace drover::v1 {

std::optional<ErrorText> error_text(const std::exception& error) {
    const auto* const own = dynamic_cast<const Error*>(&error);
    if (own == nullptr) return std::nullopt;
    return ErrorText{.cause = own->cause(),
                     .remedy = own->remedy(),
                     .is_usage = dynamic_cast<const UsageError*>(own) != nullptr};
}

}  // namespace drover::v1
