#include "data/sampling/batch_share.h"

#include <algorithm>

#include "core/error.h"

namespace drover {

std::int64_t BatchShare::fresh_of(std::int64_t batch_rows) const {
    const std::int64_t rows = rows_of(batch_rows);
    return std::clamp<std::int64_t>(batch_rows - part * rows, 0, rows);
}

LabelledBatch share_of(const LabelledBatch& batch, const BatchShare& share) {
    require(share.parts >= 1 && share.part >= 0 && share.part < share.parts, "a part among the parts");
    require(batch.rows > 0, "a batch without rows is shared");
    LabelledBatch own{.rows = share.rows_of(batch.rows), .row_length = batch.row_length};
    const std::int64_t fresh = share.fresh_of(batch.rows), length = batch.row_length;
    const std::int64_t first = share.part * own.rows;
    for (std::int64_t row = 0; row < own.rows; ++row) {
        const bool filling = row >= fresh;
        const auto from = batch.ids.begin() + (filling ? 0 : (first + row) * length);
        own.ids.insert(own.ids.end(), from, from + length);
        if (filling) {
            own.labels.insert(own.labels.end(), static_cast<std::size_t>(length), no_label);
            own.lengths.push_back(0);
        } else {
            const auto labels = batch.labels.begin() + (first + row) * length;
            own.labels.insert(own.labels.end(), labels, labels + length);
            own.lengths.push_back(batch.lengths[static_cast<std::size_t>(first + row)]);
        }
    }
    return own;
}

}  // namespace drover
