#pragma once

#include "backend/backend.h"

namespace drover::test {

/// A backend for reading and writing a GPU's memory when everything on it is done.
Backend& device_access();

}  // namespace drover::test
