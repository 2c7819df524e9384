#include "public/program_code.h"

#include <fmt/format.h>

#include "core/error.h"

namespace drover::v1 {

void call_program(std::string_view what, bool has_other_processes, const std::function<void()>& code) {
    if (!has_other_processes) return code();
    const auto refuse = [&](std::string_view why) {
        throw Error(fmt::format("{} of the program failed: {}", what, why));
    };
    try {
        code();
    } catch (const Error&) {
        throw;
    } catch (const std::exception& error) {
        refuse(error.what());
    } catch (...) {
        refuse("it threw something that is not a std::exception.");
    }
}

}  // namespace drover::v1
