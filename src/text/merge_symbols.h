#pragma once

#include "text/merge_table.h"
#include "text/token_model.h"

namespace drover {

/// Merges scratch.symbols until no adjacent symbols merge: always the pair of lowest rank, leftmost first
/// among equals. Scans short words; uses a heap, in O(n log n), for long ones.
void merge_symbols(const MergeTable& merges, EncodeScratch& scratch);

}  // namespace drover
