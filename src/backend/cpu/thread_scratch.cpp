#include "backend/cpu/thread_scratch.h"

#include <algorithm>

namespace drover::cpu {

void ThreadScratch::reserve(int threads, std::size_t bytes) {
    const std::size_t kept = bytes > bytes_ ? 0 : blocks_.size();
    bytes_ = std::max(bytes_, bytes);
    blocks_.resize(std::max(blocks_.size(), static_cast<std::size_t>(threads)));
    pointers_.resize(blocks_.size());
    for (std::size_t i = kept; i < blocks_.size(); ++i) {
        blocks_[i] = allocate_host_memory(bytes_);
        pointers_[i] = static_cast<std::byte*>(blocks_[i].get());
    }
}

}  // namespace drover::cpu
