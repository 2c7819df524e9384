#include "data/sampling/replica_part.h"

#include "core/error.h"

namespace drover {

Batch take_part(Batch whole, const ReplicaPart& part) {
    require(part.replicas >= 1 && part.replica >= 0 && part.replica < part.replicas,
            "a replica among the replicas");
    if (part.is_whole()) return whole;
    require(whole.rows > 0 && whole.filler_rows == 0,
            "a batch without rows, or with repeated ones, is shared");

    const Range taken = split_range(whole.rows, part.replicas, part.replica);
    Batch own = whole.some_rows(taken.begin, taken.count);
    own.position = whole.position;
    own.part_of = whole.whole();
    own.rows = part.rows_of(whole.rows);
    own.filler_rows = own.rows - taken.count;
    if (own.filler_rows > 0 && (taken.count == 0 || own.sequence_begin.empty())) {
        own.sequence_begin.clear();
        own.sequence_length.assign(static_cast<std::size_t>(taken.count),
                                   static_cast<std::int32_t>(own.row_length));
        for (std::int64_t row = 0; row < taken.count; ++row)
            own.sequence_begin.push_back(static_cast<std::int32_t>(row * own.row_length));
    }
    for (std::int64_t row = taken.count; row < own.rows; ++row) {
        own.ids.insert(own.ids.end(), whole.ids.begin(), whole.ids.begin() + whole.row_length);
        own.labels.insert(own.labels.end(), static_cast<std::size_t>(own.row_length), no_label);
        own.sequence_begin.push_back(static_cast<std::int32_t>(row * own.row_length));
        own.sequence_length.push_back(0);
    }
    own.drop_needless_sequences();
    return own;
}

}  // namespace drover
