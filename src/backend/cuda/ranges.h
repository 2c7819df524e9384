#pragma once

#include <string_view>

namespace drover::cuda {

/// Ranges of the host's work for NVIDIA's tools (NVTX), of the calling thread. They nest.
void push_range(std::string_view name, int number);
void pop_range();
/// Whether such a tool, Nsight Systems for example, has started this process and takes ranges.
bool tool_takes_ranges();

}  // namespace drover::cuda
