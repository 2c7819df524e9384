#pragma once

#include <cstdint>
#include <memory>

#include "data/rows/row_source.h"

namespace drover {

using SharedRows = std::shared_ptr<const RowDataset>;

struct TrainAndValidation {
    SharedRows train, validation;
};

/// Rows [begin, end) of `rows`.
SharedRows row_range(SharedRows rows, std::int64_t begin, std::int64_t end);

/// Where `train[:p%]` ends and `train[p%:]` begins: percent · rows / 100 as a double, rounded half to even,
/// like Python's round.
std::int64_t percent_boundary(std::int64_t rows, int percent);

/// validation = the first `percent` % of the rows, train = the others; see percent_boundary. Counts the rows.
TrainAndValidation split_by_percent(SharedRows rows, int percent);

/// As run_clm.py does in streaming mode: of every hundred rows, the first `percent` are validation, the next
/// one is in neither, and the others are train.
TrainAndValidation split_streaming(SharedRows rows, int percent);

}  // namespace drover
