#include "data/packing/packing.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "core/error.h"

namespace drover {

Packer::Packer(Packing packing, std::int64_t block_size, Sink sink)
    : packing_(packing), block_size_(static_cast<std::size_t>(block_size)), sink_(std::move(sink)) {
    require(packing == Packing::none ? block_size >= 0 : block_size > 0, "blocks need a size");
}

void Packer::add(std::span<const TokenId> ids) {
    if (packing_ == Packing::none) {
        const std::size_t kept = block_size_ == 0 ? ids.size() : std::min(ids.size(), block_size_);
        dropped_ += static_cast<std::int64_t>(ids.size() - kept);
        sink_(ids.first(kept));
        return;
    }
    while (!ids.empty()) {
        const std::size_t count = std::min(ids.size(), block_size_ - open_block_.size());
        open_block_.insert(open_block_.end(), ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(count));
        ids = ids.subspan(count);
        if (open_block_.size() == block_size_) {
            sink_(open_block_);
            open_block_.clear();
        }
    }
}

void Packer::end_group() {
    if (packing_ != Packing::hf) return;
    dropped_ += static_cast<std::int64_t>(open_block_.size());
    open_block_.clear();
}

void Packer::finish() {
    end_group();
    if (!open_block_.empty()) sink_(open_block_);
    open_block_.clear();
}

Groups::Groups(std::int64_t rows, std::int64_t workers)
    : shards_(std::max<std::int64_t>(1, workers == 1 ? 1 : std::min(workers, rows))) {
    require(workers >= 1 && rows >= 0, "groups need at least one worker");
    small_size_ = shards_ == 1 ? std::numeric_limits<std::int64_t>::max() : rows / shards_;
    large_count_ = shards_ == 1 ? 0 : rows % shards_;
}

std::int64_t Groups::left_in_group(std::int64_t row) const {
    std::int64_t in_shard = row;
    std::int64_t shard_size = small_size_;
    if (shards_ > 1) {
        const std::int64_t large_rows = large_count_ * (small_size_ + 1);
        if (row < large_rows) {
            shard_size = small_size_ + 1;
            in_shard = row % shard_size;
        } else {
            in_shard = (row - large_rows) % small_size_;
        }
    }
    const std::int64_t left_in_thousand = rows_per_group - in_shard % rows_per_group;
    return std::min(left_in_thousand, shard_size - in_shard);
}

}  // namespace drover
