#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "core/tensor.h"

namespace drover::cuda {

/// The experts' offsets on the host. Once they have been requested, every sort by expert also copies its
/// offsets to the host. So a reader waits for the sort at most, and not at all when the sort was long ago (in
/// backward).
class ExpertOffsets {
  public:
    ExpertOffsets() = default;
    ~ExpertOffsets();
    ExpertOffsets(const ExpertOffsets&) = delete;
    ExpertOffsets& operator=(const ExpertOffsets&) = delete;

    /// A sort that makes `offsets` was just enqueued.
    void made(cudaStream_t stream, const Tensor& offsets);
    /// Something else writes to the memory: offsets that a sort left there are no longer valid.
    void overwritten(const void* begin, std::size_t bytes);
    /// Any memory may now belong to another tensor.
    void forget();

    /// The tensor's contents at this point of the stream; valid until the next call of read() or made().
    std::span<const std::int32_t> read(cudaStream_t stream, const Tensor& offsets);

  private:
    struct Copy {
        std::int32_t* host = nullptr;
        std::size_t capacity = 0;  ///< bytes
        cudaEvent_t arrived = nullptr;
        std::size_t bytes = 0;  ///< of the offsets that a sort left at the address; 0: out of date
        bool awaited = false;   ///< the host has seen it arrive
    };
    void enqueue(cudaStream_t stream, const Tensor& offsets, Copy& copy);
    std::int32_t* take_pinned(std::size_t bytes);

    bool wanted_ = false;
    std::map<std::uintptr_t, Copy> copies_;  ///< by address on the device
    std::vector<void*> pinned_;
    std::byte* next_ = nullptr;  ///< free memory of the last pinned block
    std::size_t left_ = 0;
};

}  // namespace drover::cuda
