#pragma once

#include <exception>
#include <string_view>

#include "core/error.h"

namespace drover {

/// The Error to show for an exception that is not an Error: memory, threads or files that the system refuses,
/// otherwise a bug in this program. `doing` says what was being done: "running drover eval", "planning the
/// run".
Error explain_failure(const std::exception& problem, std::string_view doing);

/// Does the work; an exception that is not an Error is converted by explain_failure().
template <class Work>
void explain_failures(std::string_view doing, const Work& work) {
    try {
        work();
    } catch (const Error&) {
        throw;
    } catch (const std::exception& problem) {
        throw explain_failure(problem, doing);
    }
}

}  // namespace drover
