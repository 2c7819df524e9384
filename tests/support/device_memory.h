#pragma once

#include "backend/backend.h"

namespace drover::test {

/// A backend for reading and writing a GPU's memory when all its work is done.
Backend& device_access();

}  // namespace drover::test
