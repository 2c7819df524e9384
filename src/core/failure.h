#pragma once

#include <exception>
#include <string_view>

#include "core/error.h"

namespace drover {

/// What to tell a user about an exception that is no Error: memory, threads or files that the system refuses,
/// else a fault of this program. `doing` says what was being done: "running drover eval", "planning the run".
Error explain_failure(const std::exception& problem, std::string_view doing);

/// Does the work; an exception that is not an Error becomes what explain_failure() makes of it.
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
