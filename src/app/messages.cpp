#include "app/messages.h"

#include <fmt/format.h>

#include <cstdio>

namespace drover {

Messages::Messages(std::string_view level)
    : warnings_(level != "error" && level != "critical"), info_(warnings_ && level != "warning") {}

void Messages::info(std::string_view text) const {
    if (info_) fmt::print(stderr, "{}\n", text);
}

void Messages::warning(std::string_view text) const {
    if (warnings_) fmt::print(stderr, "{}\n", text);
}

}  // namespace drover
