#pragma once

#include "doctor/sections.h"

namespace drover {

/// Looks at everything. Takes a second or two, of which half is for measuring disks; whatever goes wrong in
/// one section is a finding of it.
Report examine_machine(const DoctorSettings& settings);

}  // namespace drover
