#include "model/device_batch.h"

#include <fmt/format.h>

#include <algorithm>

namespace drover {

static_assert(no_label == ignored_target, "a label is a target as it is");

void BatchBuffers::plan(Arena& arena, std::int64_t rows, std::int64_t row_length, int used_at_a_time) {
    longest_row_ = row_length;
    sets_ = std::vector<Set>(static_cast<std::size_t>(used_at_a_time) + 1);
    for (Set& set : sets_)
        for (Tensor& tensor : set.on_device)
            tensor = arena.make(MemoryUse::batch, DType::i32, {rows * row_length});
}

void BatchBuffers::prepare_staging(Backend& backend) {
    if (staging_) return;
    const Tensor& one = sets_[0].on_device[ids];
    staging_ = backend.allocate_staging(one.bytes() * parts * sets_.size());
    auto* free = static_cast<std::byte*>(staging_.get());
    for (Set& set : sets_) {
        for (Tensor& staged : set.staged) {
            staged = Tensor(free, DType::i32, one.shape());
            free += one.bytes();
        }
        set.used = backend.make_fence();
        set.copied = backend.make_fence();
    }
}

DeviceBatch BatchBuffers::any_of_shape(std::int64_t rows, std::int64_t row_length) const {
    const auto part = [&](Part which) { return sets_[turn_].on_device[which].rows(0, rows * row_length); };
    return {.ids = part(ids),
            .targets = part(targets),
            .positions = part(positions),
            .sequences = {.rows = rows, .row_length = row_length}};
}

DeviceBatch BatchBuffers::upload(Backend& backend, Stream stream, const Batch& batch,
                                 std::int64_t vocab_size) {
    const auto bad = std::find_if(batch.ids.begin(), batch.ids.end(),
                                  [&](std::int32_t id) { return id < 0 || id >= vocab_size; });
    if (bad != batch.ids.end())
        throw Error(
            fmt::format("The data holds token id {}, but the model's vocab_size is {}.", *bad, vocab_size),
            "Use the tokenizer that belongs to this config, or raise vocab_size.");
    require(batch.tokens() <= sets_[0].on_device[ids].size(0), "micro-batch larger than planned");
    require(batch.row_length <= longest_row_, "rows longer than planned");
    if (batch.is_shape_only()) return any_of_shape(batch.rows, batch.row_length);
    prepare_staging(backend);

    // All work on the oldest micro-batch, whose set comes next, is on the stream by now.
    const std::size_t next = (turn_ + 1) % sets_.size();
    sets_[next].used->put(stream);
    Set& set = sets_[turn_];
    turn_ = next;
    set.copied->wait();  // or its staging memory would be overwritten during the copy
    const Stream copies = backend.copy_stream();
    set.used->hold(copies);

    const auto put = [&](Part part, std::span<const std::int32_t> values) {
        const auto count = static_cast<std::int64_t>(values.size());
        const Tensor from = set.staged[part].rows(0, count), to = set.on_device[part].rows(0, count);
        std::copy(values.begin(), values.end(), static_cast<std::int32_t*>(from.raw()));
        backend.copy(copies, from, to);
        return to;
    };
    DeviceBatch micro{.ids = put(ids, batch.ids),
                      .targets = put(targets, batch.targets()),
                      .positions = put(positions, batch.positions()),
                      .sequences = {.rows = batch.rows, .row_length = batch.row_length}};
    if (!batch.sequence_begin.empty()) {
        std::vector<std::int32_t> in_sequence(batch.ids.size(), 0);
        for (std::size_t i = 0; i < batch.sequence_begin.size(); ++i)
            std::fill_n(in_sequence.begin() + batch.sequence_begin[i], batch.sequence_length[i], 1);
        micro.counts = put(counts, in_sequence);
        micro.sequences.begin = put(begin, batch.sequence_begin);
        micro.sequences.length = put(length, batch.sequence_length);
    }
    set.copied->put(copies);
    set.copied->hold(stream);
    return micro;
}

}  // namespace drover
