#pragma once

/// What the program and the module drover_cuda.so say to each other. Both come from one build: the Backend
/// that the module makes is used through its virtual functions.
namespace drover {

class Backend;

/// Counts up whenever Backend, an operation or a type in them changes.
inline constexpr int cuda_module_version = 5;

}  // namespace drover

extern "C" {
int drover_cuda_module_version();
/// Throws drover::Error; the caller owns what is returned.
drover::Backend* drover_make_cuda_backend(int ordinal);
}
