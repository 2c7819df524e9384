#pragma once

#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "backend/backend.h"

namespace drover {

/// The timing of one operation run on its own.
struct TimedOperation {
    std::string_view operation;  ///< its name in the list of operations
    OperationCost cost;
    std::string place;  ///< where in the model, if there are several of its kind: "gate and up"
    double seconds = 0;
};

/// Runs operations separately and repeatedly on operands that it creates.
class OperationTimer {
  public:
    /// Without `products`, compute-bound operations are not timed.
    explicit OperationTimer(Backend& backend, bool products = true)
        : backend_(backend), stream_(backend.main_stream()), products_(products) {}

    bool times_products() const { return products_; }
    Device device() const { return backend_.device(); }

    /// Standard normal values, in f32 or bf16; they repeat after 2^24.
    Tensor normal(DType dtype, const Shape& shape);
    /// Integers from [0, limit).
    Tensor integers(const Shape& shape, std::int64_t limit);
    /// Every element is `value`.
    Tensor constant(DType dtype, const Shape& shape, double value);
    Tensor zeros(DType dtype, const Shape& shape);

    /// Copies host elements into a tensor created here.
    void put(const Tensor& host, const Tensor& to) {
        backend_.copy(stream_, host, to);
        backend_.synchronize(stream_);
    }

    /// Warms up, then runs for about a fifth of a second; the median counts. Short operations are run several
    /// times in a row, as in a step, so that a GPU does not wait for the next.
    template <class Operation>
    void time(const std::string& place, const Operation& operation) {
        const OperationCost whole = operation.cost();
        if (!products_ && whole.flops > 0) return;
        results_.push_back({operation_name(operation), whole, place,
                            median_seconds([&] { backend_.run(stream_, operation); })});
    }

    /// Runs it once, to produce operands of a later one.
    template <class Operation>
    void run(const Operation& operation) {
        backend_.run(stream_, operation);
        backend_.synchronize(stream_);
    }

    const std::vector<TimedOperation>& results() const { return results_; }
    /// Frees all operands; results are kept.
    void drop_operands() { memory_.clear(); }

  private:
    double median_seconds(const std::function<void()>& run_once);
    /// The time of one of `times` runs.
    double seconds_of(const std::function<void()>& run_once, int times);

    Backend& backend_;
    Stream stream_;
    bool products_;
    std::deque<MemoryBlock> memory_;
    std::vector<TimedOperation> results_;
    std::uint64_t made_ = 0;  // number of random tensors so far; each draws its own values
};

}  // namespace drover
