#pragma once

#include "comm/communicator.h"

namespace drover {

/// The two seams of tensor parallelism. Between them a rank holds some rows or columns of each matrix;
/// outside them it holds every token's hidden state or, with sequence parallel, its share of the tokens. Each
/// seam is the other's gradient, so backward calls the same two functions. At size 1 both return their input
/// and touch nothing.
class TensorParallel {
  public:
    explicit TensorParallel(Communicator& axis, bool sequence_parallel)
        : axis_(axis), splits_tokens_(sequence_parallel && axis.size() > 1) {}

    Communicator& axis() const { return axis_; }
    /// Whether a rank holds only its share of the tokens outside the seams.
    bool splits_tokens() const { return splits_tokens_; }
    /// Tokens that this rank holds outside the seams.
    std::int64_t held_tokens(std::int64_t tokens) const {
        return splits_tokens_ ? tokens / axis_.size() : tokens;
    }

    /// Into the seam: the hidden states of all tokens. `whole` is written only when tokens are split.
    Tensor enter(Stream stream, const Tensor& held /*[held,H]*/, const Tensor& whole /*[N,H]*/) const {
        if (!splits_tokens_) return held;
        axis_.all_gather(stream, held, whole);
        return whole;
    }

    /// Out of the seam: partial sums of this rank become the total. `held` is written only when tokens are
    /// split.
    Tensor leave(Stream stream, const Tensor& partial /*[N,H]*/, const Tensor& held /*[held,H]*/) const {
        if (!splits_tokens_) {
            axis_.all_reduce(stream, partial, Reduction::sum);
            return partial;
        }
        axis_.reduce_scatter(stream, partial, held);
        return held;
    }

  private:
    Communicator& axis_;
    bool splits_tokens_;
};

}  // namespace drover
