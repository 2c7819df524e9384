#pragma once

#include "doctor/build_facts.h"

namespace drover {

/// How this program was built. The source is made by cmake/DroverBuildFacts.cmake in every build.
BuildFacts own_build_facts();

}  // namespace drover
