#pragma once

#include <string>

#include "support/background_run.h"
#include "support/run_drover.h"

namespace drover::test {

/// The MPI program that the tests start with `drover launch`.
inline const std::string launch_program = LAUNCH_PROGRAM;

inline bool contains(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

}  // namespace drover::test
