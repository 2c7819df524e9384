#include "model/device_batch.h"

#include <fmt/format.h>

#include <algorithm>

#include "backend/backend.h"

namespace drover {

static_assert(no_label == ignored_target, "a label is a target as it is");

namespace {

/// TargetRows on the host; empty where they do not pay.
struct HostTargetRows {
    std::vector<std::int32_t> tokens, targets, row_of_token;

    explicit HostTargetRows(std::span<const std::int32_t> target_of /*[N]*/) {
        const auto without = std::count(target_of.begin(), target_of.end(), no_label);
        const std::int64_t rows = TargetRows::count(std::ssize(target_of) - without, std::ssize(target_of));
        if (rows == 0) return;
        tokens.assign(static_cast<std::size_t>(rows), -1);
        targets.assign(static_cast<std::size_t>(rows), no_label);
        row_of_token.assign(target_of.size(), -1);
        std::size_t row = 0;
        for (std::size_t token = 0; token < target_of.size(); ++token) {
            if (target_of[token] == no_label) continue;
            tokens[row] = static_cast<std::int32_t>(token);
            targets[row] = target_of[token];
            row_of_token[token] = static_cast<std::int32_t>(row++);
        }
    }
};

}  // namespace

std::int64_t TargetRows::count(std::int64_t targets, std::int64_t tokens) {
    // Steps of 64 rows, or more when there are more than 4096 tokens: a micro-batch's shape then has at most
    // 64 values of R, and a device prepares its products for each only once. No target gives a step as well,
    // so that the head has rows to make its weight's gradient from.
    const std::int64_t step = 64 * std::max<std::int64_t>(1, (tokens + 4095) / 4096);
    const std::int64_t rows = std::max(step, (targets + step - 1) / step * step);
    // Rows that are trained as a whole, of eight tokens or more, lack only the target of their last token and
    // must be computed as they always were.
    return 8 * rows < 7 * tokens ? rows : 0;
}

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
    const std::vector<std::int32_t> target_of = batch.targets();
    DeviceBatch micro{.ids = put(ids, batch.ids),
                      .targets = put(targets, target_of),
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
    const HostTargetRows with_target(target_of);
    if (!with_target.tokens.empty())
        micro.target_rows = {.tokens = put(row_tokens, with_target.tokens),
                             .targets = put(row_targets, with_target.targets),
                             .row_of_token = put(row_of_token, with_target.row_of_token)};
    set.copied->put(copies);
    set.copied->hold(stream);
    return micro;
}

}  // namespace drover
