#pragma once

#include <memory>
#include <string_view>

#include "backend/backend.h"

namespace drover {

/// "cpu", "cuda", or "auto": a GPU when there is one that can be used. With auto, a GPU that cannot be used
/// (a build without CUDA, say) is told of in one line on stderr, and the CPU is taken.
std::unique_ptr<Backend> make_chosen_backend(std::string_view device);

}  // namespace drover
