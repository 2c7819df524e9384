#pragma once

#include "model/block_context.h"

namespace drover {

/// Whether elements of adapters' inputs are dropped in this micro-batch.
bool adapters_drop(const BlockContext& context);

/// Drops elements of the input of a matrix' adapters. `elements` says of which rows and columns; the rest, by
/// which other dropouts drop others, is filled in here.
void drop_adapter_input(const BlockContext& context, int block, BlockStorage::Index weight,
                        DropElements elements);

}  // namespace drover
