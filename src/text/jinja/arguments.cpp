#include "text/jinja/arguments.h"

#include <fmt/format.h>

namespace drover::jinja {

void wrong_arguments(Runtime& runtime, std::string_view what) {
    runtime.fail(fmt::format("{} does not take these arguments", what));
}

}  // namespace drover::jinja
