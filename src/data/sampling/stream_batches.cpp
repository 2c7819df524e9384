#include "data/sampling/stream_batches.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/error.h"

namespace drover {

StreamBatches::StreamBatches(NextRow next_row, StreamDealing dealing)
    : next_row_(std::move(next_row)), dealing_(dealing) {
    require(dealing.ranks >= 1 && dealing.rank >= 0 && dealing.rank < dealing.ranks,
            "a stream is dealt to a rank among its ranks");
    if (dealing.batch_size < 1 || (dealing.split_batches && dealing.batch_size % dealing.ranks != 0))
        throw UsageError(
            fmt::format("Batches of {} rows cannot be dealt to {} ranks.", dealing.batch_size, dealing.ranks),
            "Choose a batch size that the number of ranks divides, or do without split_batches.");
    part_ = static_cast<std::size_t>(dealing.split_batches ? dealing.batch_size / dealing.ranks
                                                           : dealing.batch_size);
    round_ = part_ * static_cast<std::size_t>(dealing.ranks);
}

bool StreamBatches::next(std::vector<std::vector<TokenId>>& batch) {
    batch.clear();
    rows_.clear();
    std::vector<TokenId> row;
    while (!ended_ && rows_.size() < round_) {
        if (next_row_(row))
            rows_.push_back(std::move(row));
        else
            ended_ = true;
    }
    if (rows_.empty() || (rows_.size() < round_ && dealing_.drop_last)) return false;
    const std::int64_t before = dealing_.rank * static_cast<std::int64_t>(part_);
    fresh_of_all_ = static_cast<std::int64_t>(rows_.size());
    fresh_ = std::clamp<std::int64_t>(fresh_of_all_ - before, 0, static_cast<std::int64_t>(part_));
    if (dealing_.ranks == 1) {
        batch.swap(rows_);
        return true;
    }
    if (first_round_.empty()) first_round_ = rows_;
    for (std::size_t i = 0; rows_.size() < round_; ++i)
        rows_.push_back(first_round_[i % first_round_.size()]);
    const auto begin = rows_.begin() + static_cast<std::ptrdiff_t>(before);
    batch.assign(begin, begin + static_cast<std::ptrdiff_t>(part_));
    return true;
}

}  // namespace drover
