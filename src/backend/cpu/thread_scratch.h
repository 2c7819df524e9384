#pragma once

#include <vector>

#include "core/arena.h"

namespace drover::cpu {

/// One block of memory per thread; grows to the largest size requested and never shrinks.
class ThreadScratch {
  public:
    /// Makes room for threads 0 … `threads` − 1. Not to be called while they run.
    void reserve(int threads, std::size_t bytes);
    std::byte* of(int thread) const { return blocks()[thread]; }
    /// The blocks of all threads.
    std::byte* const* blocks() const { return pointers_.data(); }

  private:
    std::vector<MemoryBlock> blocks_;
    std::vector<std::byte*> pointers_;
    std::size_t bytes_ = 0;
};

}  // namespace drover::cpu
