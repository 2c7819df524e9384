#include "core/batch.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/error.h"

namespace drover {
namespace {

/// Calls visit(begin, length) for every sequence.
template <class Visit>
void for_each_sequence(const Batch& batch, const Visit& visit) {
    if (batch.is_shape_only()) return;
    if (batch.sequence_begin.empty())
        for (std::int64_t row = 0; row < batch.rows; ++row) visit(row * batch.row_length, batch.row_length);
    for (std::size_t i = 0; i < batch.sequence_begin.size(); ++i)
        visit(std::int64_t{batch.sequence_begin[i]}, std::int64_t{batch.sequence_length[i]});
}

/// A batch that lists no sequence has one in every row, so a batch of nothing but padding lists an empty one.
void mark_if_padding(Batch& batch) {
    if (!batch.sequence_begin.empty()) return;
    batch.sequence_begin = {0};
    batch.sequence_length = {0};
}

/// Labels in [begin, end).
std::int64_t labels_between(const Batch& batch, std::int64_t begin, std::int64_t end) {
    return begin >= end ? 0
                        : std::count_if(batch.labels.begin() + begin, batch.labels.begin() + end,
                                        [](std::int32_t label) { return label != no_label; });
}

}  // namespace

std::int64_t Batch::attended_tokens() const {
    if (sequence_begin.empty()) return tokens();
    return std::accumulate(sequence_length.begin(), sequence_length.end(), std::int64_t{0});
}

std::vector<std::int32_t> Batch::targets() const {
    std::vector<std::int32_t> targets(static_cast<std::size_t>(tokens()), no_label);
    for_each_sequence(*this, [&](std::int64_t begin, std::int64_t length) {
        if (length > 1)
            std::copy(labels.begin() + begin + 1, labels.begin() + begin + length, targets.begin() + begin);
    });
    return targets;
}

std::vector<std::int32_t> Batch::positions() const {
    std::vector<std::int32_t> positions(static_cast<std::size_t>(tokens()), 0);
    for_each_sequence(*this, [&](std::int64_t begin, std::int64_t length) {
        std::iota(positions.begin() + begin, positions.begin() + begin + length, 0);
    });
    return positions;
}

std::int64_t Batch::target_count() const {
    std::int64_t count = 0;
    for_each_sequence(*this, [&](std::int64_t begin, std::int64_t length) {
        count += labels_between(*this, begin + 1, begin + length);
    });
    return count;
}

std::int64_t Batch::label_count() const {
    std::int64_t count = 0;
    for_each_sequence(*this, [&](std::int64_t begin, std::int64_t length) {
        count += labels_between(*this, begin, begin + length);
    });
    return count;
}

Batch Batch::some_rows(std::int64_t begin, std::int64_t count) const {
    require(begin >= 0 && count >= 0 && begin + count <= rows, "rows outside the batch");
    Batch part{.rows = count, .row_length = row_length};
    const std::int64_t first = begin * row_length, last = first + part.tokens();
    part.ids.assign(ids.begin() + first, ids.begin() + last);
    part.labels.assign(labels.begin() + first, labels.begin() + last);
    for (std::size_t i = 0; i < sequence_begin.size(); ++i) {
        if (sequence_begin[i] < first || sequence_begin[i] >= last) continue;
        part.sequence_begin.push_back(static_cast<std::int32_t>(sequence_begin[i] - first));
        part.sequence_length.push_back(sequence_length[i]);
    }
    if (!sequence_begin.empty()) mark_if_padding(part);
    return part;
}

void Batch::drop_needless_sequences() {
    if (std::ssize(sequence_begin) != rows) return;
    for (std::int64_t row = 0; row < rows; ++row) {
        const auto i = static_cast<std::size_t>(row);
        if (sequence_begin[i] != row * row_length || sequence_length[i] != row_length) return;
    }
    sequence_begin.clear();
    sequence_length.clear();
}

Batch Batch::full_rows(std::int64_t rows, std::int64_t row_length, std::vector<std::int32_t> ids,
                       std::vector<std::int32_t> labels) {
    Batch batch{.rows = rows, .row_length = row_length, .ids = std::move(ids), .labels = std::move(labels)};
    const auto tokens = static_cast<std::size_t>(batch.tokens());
    require(batch.ids.size() == tokens && batch.labels.size() == tokens,
            "ids and labels must fill the batch");
    return batch;
}

Batch Batch::right_padded(std::int64_t rows, std::int64_t row_length, std::vector<std::int32_t> ids,
                          std::vector<std::int32_t> labels, std::span<const std::int32_t> lengths) {
    std::vector<std::vector<std::int32_t>> row_lengths;
    for (const std::int32_t length : lengths) row_lengths.push_back({length});
    return packed(rows, row_length, std::move(ids), std::move(labels), row_lengths);
}

Batch Batch::packed(std::int64_t rows, std::int64_t row_length, std::vector<std::int32_t> ids,
                    std::vector<std::int32_t> labels,
                    std::span<const std::vector<std::int32_t>> row_lengths) {
    Batch batch = full_rows(rows, row_length, std::move(ids), std::move(labels));
    require(row_lengths.size() == static_cast<std::size_t>(rows), "every row needs its lengths");
    for (std::int64_t row = 0; row < rows; ++row) {
        std::int64_t begin = row * row_length;
        for (const std::int32_t length : row_lengths[static_cast<std::size_t>(row)]) {
            require(length >= 0 && begin + length <= (row + 1) * row_length,
                    "sequences longer than their row");
            batch.sequence_begin.push_back(static_cast<std::int32_t>(begin));
            batch.sequence_length.push_back(length);
            begin += length;
        }
    }
    mark_if_padding(batch);
    batch.drop_needless_sequences();
    return batch;
}

}  // namespace drover
