#include "core/arena.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <limits>

#include "core/machine_memory.h"
#include "core/number_text.h"

namespace drover {

std::string_view name_of(MemoryUse use) {
    switch (use) {
        case MemoryUse::parameters:
            return "parameters";
        case MemoryUse::gradients:
            return "gradients";
        case MemoryUse::gradients_after_activations:
            return "activations, then gradients";
        case MemoryUse::moments:
            return "optimizer moments";
        case MemoryUse::master:
            return "master weights";
        case MemoryUse::gathered:
            return "gathered shards";
        case MemoryUse::residual_stream:
            return "activations: residual stream";
        case MemoryUse::attention_activations:
            return "activations: attention";
        case MemoryUse::mlp_activations:
            return "activations: feed-forward";
        case MemoryUse::head:
            return "head and loss";
        case MemoryUse::waiting_gradients:
            return "gradients kept (zero bubble)";
        case MemoryUse::transfers:
            return "pipeline messages";
        case MemoryUse::scratch:
            return "scratch";
        case MemoryUse::batch:
            return "batch";
        case MemoryUse::count:
            break;
    }
    bug("unknown memory use");
}

MemoryPlan& MemoryPlan::operator+=(const MemoryPlan& other) {
    for (std::size_t use = 0; use < by_use.size(); ++use) by_use[use] += other.by_use[use];
    total += other.total;
    return *this;
}

std::string MemoryPlan::table() const {
    std::string text;
    for (std::size_t i = 0; i < by_use.size(); ++i)
        if (by_use[i] != 0)
            text +=
                fmt::format("  {:<30}{:>14}\n", name_of(static_cast<MemoryUse>(i)), bytes_text(by_use[i]));
    return text + fmt::format("  {:<30}{:>14}\n", "total", bytes_text(total));
}

MemoryBlock allocate_host_memory(std::size_t bytes) {
    if (bytes == 0) bytes = 1;
    // The system overcommits: it would grant this, and kill the process when the memory is used.
    if (bytes > std::min(allocatable_memory(), address_space_left().value_or(bytes)))
        throw Error(fmt::format("{} of memory are needed, but {}.", bytes_text(bytes), memory_limits_text()),
                    "Use a smaller batch, a shorter block or a smaller model, or raise the limit.");
    void* address = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (address == MAP_FAILED)
        throw Error(fmt::format("The system refused {} of memory.", bytes_text(bytes)),
                    "Use a smaller batch, a shorter block, more recompute, or a machine with more memory.");
    madvise(address, bytes, MADV_HUGEPAGE);  // fewer TLB misses; failure does not matter
    return MemoryBlock(address, [bytes](void* block) { munmap(block, bytes); });
}

namespace {

/// Far more than any machine has, and small enough that such numbers can be added, or multiplied by small
/// ones, without overflow.
constexpr std::size_t largest_plan = std::size_t{1} << 56;

[[noreturn]] void refuse_plan(const Shape& shape) {
    throw Error(fmt::format("The run would need more than {} of memory: one of its buffers has the shape {}.",
                            bytes_text(largest_plan), shape.text()),
                "Use a smaller batch, a shorter block or a smaller model.");
}

std::size_t aligned_bytes(DType dtype, const Shape& shape) {
    std::size_t bytes = size_of(dtype);
    for (const std::int64_t size : shape)
        if (__builtin_mul_overflow(bytes, static_cast<std::size_t>(size), &bytes)) refuse_plan(shape);
    if (bytes > largest_plan) refuse_plan(shape);
    return (bytes + Arena::alignment - 1) / Arena::alignment * Arena::alignment;
}

}  // namespace

Arena Arena::measuring(Device device) {
    return Arena(device, largest_plan);
}

Arena::Arena(MemoryBlock block, std::size_t bytes, Device device)
    : block_(std::move(block)), capacity_(bytes), device_(device) {}

// A measuring arena hands out addresses near zero: distinct, never null, and a fault when touched by mistake.
std::byte* Arena::base() const {
    return is_measuring() ? reinterpret_cast<std::byte*>(alignment) : static_cast<std::byte*>(block_.get());
}

Tensor Arena::make(MemoryUse use, DType dtype, const Shape& shape) {
    const std::size_t bytes = aligned_bytes(dtype, shape);
    if (is_measuring() && bytes > capacity_ - used_) refuse_plan(shape);
    require(bytes <= capacity_ - used_, "the arena is smaller than its plan");
    Tensor tensor(base() + used_, dtype, shape, device_);
    used_ += bytes;
    by_use_[static_cast<std::size_t>(use)] += bytes;
    if (used_ > peak_.total) {
        peak_.total = used_;
        peak_.by_use = by_use_;
    }
    return tensor;
}

void Arena::lend(const Tensor& gradient) {
    const auto begin = static_cast<std::size_t>(static_cast<std::byte*>(gradient.raw()) - base());
    const std::size_t end = begin + aligned_bytes(gradient.dtype(), gradient.shape());
    require(begin % alignment == 0 && end <= used_, "memory is lent that the arena did not hand out");
    const auto next = std::ranges::find_if(lent_, [&](const Piece& piece) { return piece.begin >= begin; });
    const auto place = lent_.insert(next, {begin, end});
    if (const auto after = place + 1; after != lent_.end() && after->begin == place->end) {
        place->end = after->end;
        lent_.erase(after);
    }
    if (place != lent_.begin() && (place - 1)->end == place->begin) {
        (place - 1)->end = place->end;
        lent_.erase(place);
    }
}

Tensor Arena::make_in_lent(MemoryUse use, DType dtype, const Shape& shape) {
    const std::size_t bytes = aligned_bytes(dtype, shape);
    // The smallest piece with room, so that large ones stay whole.
    auto found = lent_.end();
    for (auto piece = lent_.begin(); piece != lent_.end(); ++piece)
        if (piece->end - piece->begin >= bytes &&
            (found == lent_.end() || piece->end - piece->begin < found->end - found->begin))
            found = piece;
    if (found == lent_.end()) return make(use, dtype, shape);
    Tensor tensor(base() + found->begin, dtype, shape, device_);
    found->begin += bytes;
    if (found->begin == found->end) lent_.erase(found);
    const auto move_bytes = [&](MemoryPlan::ByUse& by_use) {
        by_use[static_cast<std::size_t>(MemoryUse::gradients)] -= bytes;
        by_use[static_cast<std::size_t>(MemoryUse::gradients_after_activations)] += bytes;
    };
    if (peak_.total == used_) move_bytes(peak_.by_use);
    move_bytes(by_use_);
    return tensor;
}

}  // namespace drover
