#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "data/conversation/example_tokenizer.h"
#include "data/packing/ordered_pipeline.h"
#include "data/packing/packing.h"
#include "data/rows/row_source.h"

namespace drover {

/// Consecutive rows of one group.
struct ExamplePiece {
    std::int64_t first_row = 0;
    RowBatch rows;
    std::vector<TokenizedExample> examples;
    bool ends_group = false;
};

/// Reads and tokenizes the rows of `dataset`, which are JSON objects, in their order; errors say which row
/// they are about. All arguments must outlive the pipeline.
std::unique_ptr<OrderedPipeline<ExamplePiece>> make_example_pipeline(
    const RowDataset& dataset, ExampleFormat format, const ExampleTokenizer& examples,
    const SftOptions& options, const Groups& groups, std::size_t threads);

}  // namespace drover
