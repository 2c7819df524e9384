#include "model/batch.h"

#include <algorithm>
#include <numeric>

namespace drover {

std::int64_t TokenBatch::target_count() const {
    return std::count_if(targets.begin(), targets.end(), [](std::int32_t t) { return t != ignored_target; });
}

TokenBatch TokenBatch::some_rows(std::int64_t begin, std::int64_t count) const {
    require(begin >= 0 && count >= 0 && begin + count <= rows, "rows outside the batch");
    TokenBatch part{.rows = count, .row_length = row_length};
    const std::int64_t first = begin * row_length, last = first + part.tokens();
    const auto cut = [&](const std::vector<std::int32_t>& from, std::vector<std::int32_t>& to) {
        to.assign(from.begin() + first, from.begin() + last);
    };
    cut(ids, part.ids);
    cut(targets, part.targets);
    cut(positions, part.positions);
    for (std::size_t i = 0; i < sequence_begin.size(); ++i) {
        if (sequence_begin[i] < first || sequence_begin[i] >= last) continue;
        part.sequence_begin.push_back(static_cast<std::int32_t>(sequence_begin[i] - first));
        part.sequence_length.push_back(sequence_length[i]);
    }
    if (!sequence_begin.empty() &&
        part.sequence_begin.empty()) {  // none is not the same as every row being one
        part.sequence_begin = {0};
        part.sequence_length = {0};
    }
    return part;
}

TokenBatch TokenBatch::from_labels(std::int64_t rows, std::int64_t row_length,
                                   std::span<const std::int32_t> ids, std::span<const std::int32_t> labels) {
    const std::vector<std::vector<std::int32_t>> whole_rows(static_cast<std::size_t>(rows),
                                                            {static_cast<std::int32_t>(row_length)});
    TokenBatch batch = packed(rows, row_length, ids, labels, whole_rows);
    batch.sequence_begin.clear();
    batch.sequence_length.clear();
    return batch;
}

TokenBatch TokenBatch::right_padded(std::int64_t rows, std::int64_t row_length,
                                    std::span<const std::int32_t> ids, std::span<const std::int32_t> labels,
                                    std::span<const std::int32_t> lengths) {
    std::vector<std::vector<std::int32_t>> row_lengths;
    for (const std::int32_t length : lengths) row_lengths.push_back({length});
    return packed(rows, row_length, ids, labels, row_lengths);
}

TokenBatch TokenBatch::packed(std::int64_t rows, std::int64_t row_length, std::span<const std::int32_t> ids,
                              std::span<const std::int32_t> labels,
                              std::span<const std::vector<std::int32_t>> row_lengths) {
    TokenBatch batch{.rows = rows, .row_length = row_length};
    const auto tokens = static_cast<std::size_t>(batch.tokens());
    require(ids.size() == tokens && labels.size() == tokens, "ids and labels must fill the batch");
    require(row_lengths.size() == static_cast<std::size_t>(rows), "every row needs its lengths");
    batch.ids.assign(ids.begin(), ids.end());
    batch.targets.assign(tokens, ignored_target);
    batch.positions.assign(tokens, 0);
    for (std::int64_t row = 0; row < rows; ++row) {
        std::int64_t begin = row * row_length;
        for (const std::int32_t length : row_lengths[static_cast<std::size_t>(row)]) {
            require(length >= 0 && begin + length <= (row + 1) * row_length,
                    "sequences longer than their row");
            batch.sequence_begin.push_back(static_cast<std::int32_t>(begin));
            batch.sequence_length.push_back(length);
            for (std::int32_t i = 0; i < length; ++i) {
                const auto at = static_cast<std::size_t>(begin + i);
                batch.positions[at] = i;
                if (i + 1 < length) batch.targets[at] = labels[at + 1];
                batch.label_count += labels[at] != ignored_target;
            }
            begin += length;
        }
    }
    return batch;
}

}  // namespace drover
