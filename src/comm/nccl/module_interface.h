#pragma once

/// The interface between the program and the module drover_nccl.so. Both come from one build.
namespace drover {

class GpuLinks;

/// Incremented whenever GpuLinks, GpuLink or a type in them changes.
inline constexpr int nccl_module_version = 2;

}  // namespace drover

extern "C" {
int drover_nccl_module_version();
/// For the GPU that `stream` (a cudaStream_t) belongs to. Throws drover::Error; the caller owns what is
/// returned.
drover::GpuLinks* drover_make_nccl_links(void* stream);
}
