#pragma once

#include <span>
#include <vector>

#include "core/torch_rng.h"

namespace drover {

/// Rows for tokens that a vocabulary did not have, added to an embedding or a head the way transformers ≥
/// 4.46 does: drawn from a normal distribution with the old rows' mean and 1e-9 times their covariance, or
/// the mean itself if that covariance has no Cholesky factor (for example, fewer rows than columns). The
/// generator's draws are PyTorch's; covariance and factor differ from PyTorch's by rounding.
std::vector<float> draw_added_rows(std::span<const float> old_rows /*[rows,columns]*/, std::int64_t columns,
                                   std::int64_t added, TorchRng& generator);

}  // namespace drover
