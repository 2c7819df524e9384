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
    if (dealing.batch_size < 1)
        throw UsageError(fmt::format("The batch size is {}.", dealing.batch_size), "Use at least 1.");
}

bool StreamBatches::next(std::vector<TokenRow>& batch) {
    batch.clear();
    rows_.clear();
    TokenRow row;
    const std::int64_t size = dealing_.batch_size, round = size * dealing_.ranks;
    while (!ended_ && std::ssize(rows_) < round) {
        if (next_row_(row))
            rows_.push_back(std::move(row));
        else
            ended_ = true;
    }
    if (rows_.empty()) return false;
    rows_of_all_ = std::ssize(rows_);
    filler_ = 0;
    if (dealing_.ranks == 1) {
        batch.swap(rows_);
        return true;
    }
    const std::int64_t first = dealing_.rank * size;
    filler_ = std::clamp<std::int64_t>(first + size - rows_of_all_, 0, size);
    if (first_round_.empty()) first_round_ = rows_;
    for (std::size_t i = 0; std::ssize(rows_) < round; ++i)
        rows_.push_back(first_round_[i % first_round_.size()]);
    batch.assign(rows_.begin() + first, rows_.begin() + first + size);
    return true;
}

}  // namespace drover
