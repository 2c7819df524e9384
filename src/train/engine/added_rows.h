#pragma once

#include <span>
#include <vector>

#include "core/torch_rng.h"

namespace drover {

/// Rows for tokens that a vocabulary did not have, as transformers ≥ 4.46 adds them to an embedding or a
/// head: drawn from a normal distribution that has the old rows' mean and 1e-9 times their covariance; the
/// mean itself when that covariance has no Cholesky factor (fewer rows than columns, say). The generator's
/// draws are PyTorch's, covariance and factor differ from its by rounding.
std::vector<float> draw_added_rows(std::span<const float> old_rows /*[rows,columns]*/, std::int64_t columns,
                                   std::int64_t added, TorchRng& generator);

}  // namespace drover
