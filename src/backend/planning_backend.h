#pragma once

#include <memory>

#include "core/tensor.h"

namespace drover {

class Backend;

/// A backend that takes the place of a device of this kind while a run is planned. It checks the operands of
/// every operation and copy as a backend does, and then does nothing: no operand is read or written, so the
/// tensors of a measuring arena suffice. It has no memory but staging memory, which stays zero.
std::unique_ptr<Backend> make_planning_backend(Device device);

}  // namespace drover
