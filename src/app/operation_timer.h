#pragma once

#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "backend/backend.h"

namespace drover {

/// One operation run alone.
struct TimedOperation {
    std::string_view operation;  ///< its name in the list of operations
    OperationCost cost;
    std::string place;  ///< where in the model, when there are several of its kind: "gate and up"
    double seconds = 0;
};

/// Runs operations alone and repeatedly on operands that it makes.
class OperationTimer {
  public:
    /// Without `products`, operations that arithmetic bounds are not timed.
    explicit OperationTimer(Backend& backend, bool products = true)
        : backend_(backend), stream_(backend.main_stream()), products_(products) {}

    bool times_products() const { return products_; }
    Device device() const { return backend_.device(); }

    /// Standard normal values, in f32 or bf16; after 2^24 of them the same ones again.
    Tensor normal(DType dtype, const Shape& shape);
    /// Integers from [0, limit).
    Tensor integers(const Shape& shape, std::int64_t limit);
    /// `value` everywhere.
    Tensor constant(DType dtype, const Shape& shape, double value);
    Tensor zeros(DType dtype, const Shape& shape);

    /// Copies elements of the host into a tensor that was made.
    void put(const Tensor& host, const Tensor& to) {
        backend_.copy(stream_, host, to);
        backend_.synchronize(stream_);
    }

    /// For warm-up first, then for about a fifth of a second; the median counts. Short operations are run
    /// several times in a row, as they are in a step, so that a GPU does not wait for the next.
    template <class Operation>
    void time(const std::string& place, const Operation& operation) {
        const OperationCost whole = operation.cost();
        if (!products_ && whole.flops > 0) return;
        results_.push_back({operation_name(operation), whole, place,
                            median_seconds([&] { backend_.run(stream_, operation); })});
    }

    /// Runs it once, where the operands of a later one come from.
    template <class Operation>
    void run(const Operation& operation) {
        backend_.run(stream_, operation);
        backend_.synchronize(stream_);
    }

    const std::vector<TimedOperation>& results() const { return results_; }
    /// Frees all operands that were made; results stay.
    void drop_operands() { memory_.clear(); }

  private:
    double median_seconds(const std::function<void()>& run_once);
    /// Of one of `times` runs.
    double seconds_of(const std::function<void()>& run_once, int times);

    Backend& backend_;
    Stream stream_;
    bool products_;
    std::deque<MemoryBlock> memory_;
    std::vector<TimedOperation> results_;
    std::uint64_t made_ = 0;  // tensors of random values: each draws its own
};

}  // namespace drover
