#include "backend/cuda/scratch.h"

#include <algorithm>
#include <cstring>

#include "backend/cuda/cuda_error.h"

namespace drover::cuda {
namespace {

/// Waits until nothing on the device uses `memory` any more, frees it, and allocates `bytes` instead.
void replace(void*& memory, std::size_t bytes, std::string_view what) {
    check(cudaDeviceSynchronize(), "earlier operations");
    if (memory != nullptr) check(cudaFree(memory), what);
    memory = nullptr;
    check(cudaMalloc(&memory, bytes), what);
}

}  // namespace

Scratch::~Scratch() {
    if (memory_ != nullptr) cudaFree(memory_);
}

void* Scratch::take(std::size_t bytes) {
    if (bytes > capacity_) {
        capacity_ = 0;  // in case this fails
        ++moves_;
        replace(memory_, bytes, "an operation's scratch memory");
        capacity_ = bytes;
    }
    return memory_;
}

DeviceTable::~DeviceTable() {
    if (memory_ != nullptr) cudaFree(memory_);
}

const void* DeviceTable::upload(cudaStream_t stream, const void* bytes, std::size_t count) {
    if (host_.size() == count && (count == 0 || std::memcmp(host_.data(), bytes, count) == 0)) return memory_;
    if (count > capacity_) {
        capacity_ = 0;  // in case this fails
        host_.clear();
        replace(memory_, count, "a table of tensors");
        capacity_ = count;
    }
    // A copy from pageable memory takes the bytes before it returns.
    check(cudaMemcpyAsync(memory_, bytes, count, cudaMemcpyHostToDevice, stream), "the upload of a table");
    host_.assign(static_cast<const unsigned char*>(bytes), static_cast<const unsigned char*>(bytes) + count);
    return memory_;
}

}  // namespace drover::cuda
