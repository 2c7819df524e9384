#include "convert/look_through.h"

#include <algorithm>

#include "core/error.h"

namespace drover {
namespace {

/// What `outer`, a block of a tensor that is made of blocks, takes of one of these.
void add_part(const Block& outer, const Block& inner, std::vector<Block>& parts) {
    const std::int64_t top = std::max(outer.row_begin, inner.to_row),
                       bottom =
                           std::min(outer.row_begin + outer.row_count, inner.to_row + inner.rows_written()),
                       left = std::max(outer.column_begin, inner.to_column),
                       right = std::min(outer.column_begin + outer.column_count,
                                        inner.to_column + inner.columns_written());
    if (top >= bottom || left >= right) return;
    Block part = inner;
    // Rows of the tensor between are columns of the source where the inner block is transposed.
    const std::int64_t down = inner.transposed ? left - inner.to_column : top - inner.to_row,
                       across = inner.transposed ? top - inner.to_row : left - inner.to_column;
    part.row_begin += down * inner.row_step;
    part.column_begin += across;
    part.row_count = inner.transposed ? right - left : bottom - top;
    part.column_count = inner.transposed ? bottom - top : right - left;
    part.transposed = inner.transposed != outer.transposed;
    part.to_row = outer.to_row + (outer.transposed ? left - outer.column_begin : top - outer.row_begin);
    part.to_column = outer.to_column + (outer.transposed ? top - outer.row_begin : left - outer.column_begin);
    parts.push_back(part);
}

}  // namespace

void look_through(PlannedTensor& tensor, const std::vector<PlannedTensor>& made) {
    std::vector<Block> parts;
    for (const Block& outer : tensor.blocks) {
        require(outer.row_step == 1, "a block of a planned tensor has consecutive rows");
        if (outer.item == Block::zeros) {
            parts.push_back(outer);
            continue;
        }
        for (const Block& inner : made.at(outer.item).blocks) add_part(outer, inner, parts);
    }
    tensor.blocks = std::move(parts);
}

std::vector<TensorSource::Item> items_of(const std::vector<PlannedTensor>& made) {
    std::vector<TensorSource::Item> items;
    for (const PlannedTensor& tensor : made) items.push_back(tensor.as_item());
    return items;
}

}  // namespace drover
