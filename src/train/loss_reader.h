#pragma once

#include <vector>

#include "backend/backend.h"

namespace drover {

/// Adds up the losses of a step's micro-batches. They stay on the device until they are asked for, so that
/// the host can enqueue the next micro-batch while the device still works on this one.
class LossReader {
  public:
    /// How many micro-batches may be unread; the next one waits for them.
    static constexpr std::int64_t most_unread = 64;

    /// `sums` and `balances`: [most_unread] f64, of which the reader needs the bytes while it lives.
    LossReader(const Tensor& sums, const Tensor& balances, Backend& backend, Stream stream)
        : sums_(sums), balances_(balances), backend_(backend), stream_(stream) {}

    /// The sum of `losses` ([n] f32) counts `scale` times, `balance` ([1] f64, or absent) `balance_scale`
    /// times.
    void add(const Tensor& losses, double scale, const Tensor& balance, double balance_scale);
    /// All that was added. Waits for the device.
    double sum();

  private:
    struct Unread {
        double scale, balance_scale;
        bool has_balance;
    };

    Tensor sums_, balances_;
    Backend& backend_;
    Stream stream_;
    std::vector<Unread> unread_;
    double sum_ = 0;
};

}  // namespace drover
