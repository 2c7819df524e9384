#include "backend/cuda/expert_offsets.h"

#include <algorithm>
#include <utility>

#include "backend/cuda/cuda_error.h"

namespace drover::cuda {
namespace {

std::uintptr_t address_of(const void* pointer) {
    return reinterpret_cast<std::uintptr_t>(pointer);
}

}  // namespace

ExpertOffsets::~ExpertOffsets() {
    for (const auto& [address, copy] : copies_)
        if (copy.arrived != nullptr) cudaEventDestroy(copy.arrived);
    for (void* block : pinned_) cudaFreeHost(block);
}

std::int32_t* ExpertOffsets::take_pinned(std::size_t bytes) {
    const std::size_t rounded = (bytes + 63) / 64 * 64;
    if (rounded > left_) {
        const std::size_t block = std::max<std::size_t>(rounded, 65536);
        void* memory = nullptr;
        check(cudaMallocHost(&memory, block), "host memory for the experts' offsets");
        pinned_.push_back(memory);
        next_ = static_cast<std::byte*>(memory);
        left_ = block;
    }
    left_ -= rounded;
    return reinterpret_cast<std::int32_t*>(std::exchange(next_, next_ + rounded));
}

void ExpertOffsets::enqueue(cudaStream_t stream, const Tensor& offsets, Copy& copy) {
    copy.bytes = 0;  // in case this fails
    if (copy.arrived == nullptr)
        check(cudaEventCreateWithFlags(&copy.arrived, cudaEventDisableTiming), "an event");
    if (offsets.bytes() > copy.capacity) {
        copy.host = take_pinned(offsets.bytes());
        copy.capacity = offsets.bytes();
    }
    check(cudaMemcpyAsync(copy.host, offsets.raw(), offsets.bytes(), cudaMemcpyDeviceToHost, stream),
          "the experts' offsets");
    check(cudaEventRecord(copy.arrived, stream), "the experts' offsets");
    copy.awaited = false;
}

void ExpertOffsets::made(cudaStream_t stream, const Tensor& offsets) {
    overwritten(offsets.raw(), offsets.bytes());
    if (!wanted_) return;
    Copy& copy = copies_[address_of(offsets.raw())];
    enqueue(stream, offsets, copy);
    copy.bytes = offsets.bytes();
}

void ExpertOffsets::overwritten(const void* begin, std::size_t bytes) {
    const std::uintptr_t first = address_of(begin), end = first + bytes;
    for (auto& [address, copy] : copies_)
        if (address < end && first < address + copy.bytes) copy.bytes = 0;
}

void ExpertOffsets::forget() {
    for (auto& [address, copy] : copies_) copy.bytes = 0;
}

std::span<const std::int32_t> ExpertOffsets::read(cudaStream_t stream, const Tensor& offsets) {
    wanted_ = true;
    Copy& copy = copies_[address_of(offsets.raw())];
    // Offsets that did not come from a sort may change unnoticed, so they are read each time.
    if (copy.bytes != offsets.bytes()) enqueue(stream, offsets, copy);
    if (!copy.awaited) {
        check(cudaEventSynchronize(copy.arrived), "operations before a grouped product");
        copy.awaited = true;
    }
    return {copy.host, static_cast<std::size_t>(offsets.size(0))};
}

}  // namespace drover::cuda
