#pragma once

#include "convert/conversion_plan.h"

namespace drover {

/// Turns blocks of tensors that are themselves planned (`made`, where a block's item is an index) into blocks
/// of the source that these are made of. So a layout can be planned from the tensors of a model, whatever
/// parts a checkpoint has them in.
void look_through(PlannedTensor& tensor, const std::vector<PlannedTensor>& made);

/// The tensors as items, for plans whose blocks look_through() then turns.
std::vector<TensorSource::Item> items_of(const std::vector<PlannedTensor>& made);

}  // namespace drover
