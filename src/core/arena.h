#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/tensor.h"

namespace drover {

/// What a buffer is for, as the memory plan reports it.
enum class MemoryUse : std::uint8_t {
    parameters,
    gradients,
    gradients_after_activations,  ///< memory that activations use before gradients do
    moments,
    master,
    gathered,
    residual_stream,
    attention_activations,
    mlp_activations,
    head,
    waiting_gradients,
    transfers,
    scratch,
    batch,
    count
};

std::string_view name_of(MemoryUse use);

/// Bytes by use; `total` is their sum.
struct MemoryPlan {
    using ByUse = std::array<std::size_t, static_cast<std::size_t>(MemoryUse::count)>;
    ByUse by_use{};
    std::size_t total = 0;

    std::size_t operator[](MemoryUse use) const { return by_use[static_cast<std::size_t>(use)]; }
    /// Adds what is allocated besides.
    MemoryPlan& operator+=(const MemoryPlan& other);
    /// A table with one line per use that is not zero.
    std::string table() const;
};

/// One block of device memory; frees itself.
using MemoryBlock = std::unique_ptr<void, std::function<void(void*)>>;

/// Zeroed, page-aligned host memory whose pages are placed when they are first touched.
MemoryBlock allocate_host_memory(std::size_t bytes);

/// Hands out the buffers of a run from one block of memory. The same planning code runs twice: against a
/// measuring arena, whose tensors have a shape but no memory, and then against a real arena of exactly the
/// measured size. So the plan cannot differ from the allocation.
class Arena {
    struct Piece {
        std::size_t begin, end;
    };

  public:
    /// A measuring arena: counts, and returns tensors that must not be read or written.
    static Arena measuring(Device device);
    /// A real arena over `block`, which holds `bytes`.
    Arena(MemoryBlock block, std::size_t bytes, Device device);

    /// A packed tensor; its address is a multiple of `alignment`. The bytes are not initialised when the
    /// space was used before in a closed Scope, and zero otherwise.
    Tensor make(MemoryUse use, DType dtype, const Shape& shape);

    /// Lends the memory of a tensor of MemoryUse::gradients, which is in use only from some moment on:
    /// make_in_lent() may put there what nobody needs any more by then.
    void lend(const Tensor& gradient);
    /// As make(), but in lent memory if a piece of it has room. Memory is lent once. The bytes are then not
    /// initialised.
    Tensor make_in_lent(MemoryUse use, DType dtype, const Shape& shape);

    /// Buffers made while a Scope is open give their space back when it closes; what is made next reuses it.
    /// This is how buffers that never live at the same time share memory.
    class Scope {
      public:
        explicit Scope(Arena& arena)
            : arena_(arena), used_(arena.used_), by_use_(arena.by_use_), lent_(arena.lent_) {}
        ~Scope() {
            arena_.used_ = used_;
            arena_.by_use_ = by_use_;
            arena_.lent_ = std::move(lent_);
        }
        Scope(const Scope&) = delete;
        Scope& operator=(const Scope&) = delete;

      private:
        Arena& arena_;
        std::size_t used_;
        MemoryPlan::ByUse by_use_;
        std::vector<Piece> lent_;
    };

    bool is_measuring() const { return !block_; }
    Device device() const { return device_; }
    /// The largest number of bytes in use at once so far, by use.
    const MemoryPlan& plan() const { return peak_; }

    static constexpr std::size_t alignment = 256;

  private:
    Arena(Device device, std::size_t capacity) : capacity_(capacity), device_(device) {}

    std::byte* base() const;

    MemoryBlock block_;
    std::size_t capacity_ = 0;
    std::size_t used_ = 0;
    MemoryPlan::ByUse by_use_{};
    std::vector<Piece> lent_;  // in the order of their addresses, none next to another
    MemoryPlan peak_;
    Device device_;
};

}  // namespace drover
