#include "run/messages.h"

#include <fmt/format.h>

#include <utility>

#include "core/console.h"

namespace drover {

Messages::Messages(std::string_view level, std::FILE* out, std::string before_lines)
    : warnings_(level != "error" && level != "critical"),
      info_(warnings_ && level != "warning"),
      out_(out),
      before_lines_(std::move(before_lines)) {}

void Messages::info(std::string_view text) const {
    if (info_) say(text);
}

void Messages::warning(std::string_view text) const {
    if (warnings_) say(text);
}

void Messages::say(std::string_view text) const {
    print_log(out_, "{}{}\n", before_lines_, text);
}

void show_end(const Error& error) {
    print_log(stderr, "drover: {}\n", error.what());
}

}  // namespace drover
