#pragma once

#include "text/merge_table.h"
#include "text/token_model.h"

namespace drover {

/// Merges scratch.symbols until no neighbours merge: always the pair of lowest rank, the leftmost of equals.
/// Short words by scanning, long ones with a heap in O(n log n).
void merge_symbols(const MergeTable& merges, EncodeScratch& scratch);

}  // namespace drover
