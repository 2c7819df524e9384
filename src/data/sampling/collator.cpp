#include "data/sampling/collator.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/error.h"

namespace drover {

CausalCollator::CausalCollator(CollatorOptions options) : options_(std::move(options)) {
    if (options_.pad_to_multiple_of < 1)
        throw UsageError(fmt::format("pad_to_multiple_of is {}.", options_.pad_to_multiple_of),
                         "Use at least 1.");
    if (!std::is_sorted(options_.buckets.begin(), options_.buckets.end()) ||
        (!options_.buckets.empty() && options_.buckets.front() < 1))
        throw UsageError("The length buckets are not positive and ascending.", "List them in order.");
}

std::int64_t CausalCollator::padded_length(std::int64_t longest) {
    const std::int64_t multiple = options_.pad_to_multiple_of;
    const std::int64_t length = (longest + multiple - 1) / multiple * multiple;
    if (options_.buckets.empty()) return length;
    const auto bucket = std::lower_bound(options_.buckets.begin(), options_.buckets.end(), length);
    if (bucket == options_.buckets.end()) {
        options_.buckets.push_back(length);
        return length;
    }
    return (*bucket + multiple - 1) / multiple * multiple;
}

LabelledBatch CausalCollator::collate(std::span<const std::vector<TokenId>> rows,
                                      std::span<const std::vector<TokenId>> labels) {
    std::size_t longest = 0;
    for (const std::vector<TokenId>& row : rows) longest = std::max(longest, row.size());
    LabelledBatch batch{.rows = static_cast<std::int64_t>(rows.size()),
                        .row_length = padded_length(static_cast<std::int64_t>(longest))};
    const auto count = static_cast<std::size_t>(batch.rows * batch.row_length);
    batch.ids.reserve(count);
    batch.labels.reserve(count);
    for (std::size_t i = 0; i < rows.size(); ++i) {
        const std::vector<TokenId>& row = rows[i];
        batch.lengths.push_back(static_cast<std::int32_t>(row.size()));
        batch.ids.insert(batch.ids.end(), row.begin(), row.end());
        if (i < labels.size() && !labels[i].empty()) {
            require(labels[i].size() == row.size(), "a row has a label for every id");
            batch.labels.insert(batch.labels.end(), labels[i].begin(), labels[i].end());
        } else {
            for (const TokenId id : row)
                batch.labels.push_back(options_.ignore_every_pad_id && id == options_.pad_id ? no_label : id);
        }
        batch.ids.resize(batch.lengths.size() * static_cast<std::size_t>(batch.row_length), options_.pad_id);
        batch.labels.resize(batch.ids.size(), no_label);
    }
    return batch;
}

std::vector<std::int64_t> uniform_buckets(std::int64_t longest, std::int64_t count) {
    if (longest < 1 || count < 1 || count > longest)
        throw UsageError(
            fmt::format("Rows of at most {} tokens cannot have {} length buckets.", longest, count),
            "Use between 1 bucket and one per token.");
    std::vector<std::int64_t> buckets;
    for (std::int64_t i = 1; i <= count; ++i)
        buckets.push_back(longest / count * i + longest % count * i / count);
    return buckets;
}

TokenId choose_pad_id(const Tokenizer& tokenizer, bool eos_pads) {
    const std::optional<TokenId> id = eos_pads ? tokenizer.eos() : tokenizer.pad();
    if (!id)
        throw Error(fmt::format("The tokenizer has no {} token, and rows of different lengths need one to be "
                                "padded with.",
                                eos_pads ? "EOS" : "pad"),
                    eos_pads ? "Name one in tokenizer_config.json." : "Pad with EOS: set pad_token to eos.");
    return *id;
}

}  // namespace drover
