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
}

Batch CausalCollator::collate(std::span<const std::vector<TokenId>> rows,
                              std::span<const std::vector<TokenId>> labels,
                              std::span<const std::vector<std::int32_t>> documents) const {
    std::size_t longest = 0;
    for (const std::vector<TokenId>& row : rows) longest = std::max(longest, row.size());
    const auto multiple = static_cast<std::size_t>(options_.pad_to_multiple_of);
    const std::size_t row_length = (longest + multiple - 1) / multiple * multiple;
    std::vector<std::int32_t> all_ids, all_labels;
    std::vector<std::vector<std::int32_t>> lengths;
    all_ids.reserve(rows.size() * row_length);
    all_labels.reserve(rows.size() * row_length);
    for (std::size_t i = 0; i < rows.size(); ++i) {
        const std::vector<TokenId>& row = rows[i];
        if (i < documents.size() && !documents[i].empty())
            lengths.push_back(documents[i]);
        else
            lengths.push_back({static_cast<std::int32_t>(row.size())});
        all_ids.insert(all_ids.end(), row.begin(), row.end());
        if (i < labels.size() && !labels[i].empty()) {
            require(labels[i].size() == row.size(), "a row has a label for every id");
            all_labels.insert(all_labels.end(), labels[i].begin(), labels[i].end());
        } else {
            for (const TokenId id : row)
                all_labels.push_back(options_.ignore_every_pad_id && id == options_.pad_id ? no_label : id);
        }
        if (options_.drops_first_labels)
            for (std::size_t begin = i * row_length; const std::int32_t length : lengths.back()) {
                if (length > 0) all_labels[begin] = no_label;
                begin += static_cast<std::size_t>(length);
            }
        all_ids.resize((i + 1) * row_length, options_.pad_id);
        all_labels.resize(all_ids.size(), no_label);
    }
    return Batch::packed(static_cast<std::int64_t>(rows.size()), static_cast<std::int64_t>(row_length),
                         std::move(all_ids), std::move(all_labels), lengths);
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
