#include "public/split_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/batch.h"
#include "core/content_hash.h"
#include "core/error.h"
#include "public/parts.h"
#include "public/program_code.h"

namespace drover::v1 {
namespace {

void add_ids(ContentHash& hash, const std::vector<TokenId>& ids) {
    hash.add({reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof(TokenId)});
}

}  // namespace

SplitRows::SplitRows(const Split& split, std::string name, std::int64_t vocab_size, bool has_other_processes)
    : parts_(split.parts()),
      name_(std::move(name)),
      vocab_size_(vocab_size),
      has_other_processes_(has_other_processes) {
    if (!parts_->own) parts_->check_has_ids();
    const std::int64_t rows = parts_->size();
    if (parts_->own) limit_ = longest_ = parts_->own->max_length();
    if (limit_ < 0)
        throw Error(fmt::format("{}: max_length() is {}.", name_, limit_),
                    "Return the length of the longest row, or 0 if it is not known.");
    ContentHash hash;
    for (std::int64_t place = 0; place < rows; ++place) {
        if (!parts_->own && parts_->ids[static_cast<std::size_t>(place)].empty()) continue;
        places_.push_back(place);
        if (limit_ > 0 && place > 0 && place < rows - 1) continue;
        const TokenRow row = checked_row(place);
        add_ids(hash, row.input_ids);
        add_ids(hash, row.labels);
        if (limit_ > 0) continue;
        lengths_.push_back(static_cast<std::int32_t>(row.input_ids.size()));
        longest_ = std::max<std::int64_t>(longest_, lengths_.back());
    }
    if (longest_ < 2)
        throw Error(fmt::format("No row of the {} has two tokens, so there is nothing to predict.", name_),
                    "Use longer rows.");
    fingerprint_ = fmt::format("{} {} {}", hash.hex(), places_.size(), longest_);
}

std::int64_t SplitRows::length(std::int64_t row) const {
    const auto index = static_cast<std::size_t>(row);
    if (!lengths_.empty()) return lengths_[index];
    return std::ssize(checked_row(places_[index]).input_ids);
}

void SplitRows::read(std::int64_t row, std::vector<TokenId>& ids, std::vector<TokenId>& labels) const {
    TokenRow found = checked_row(places_[static_cast<std::size_t>(row)]);
    ids = std::move(found.input_ids);
    labels = std::move(found.labels);
}

TokenRow SplitRows::checked_row(std::int64_t place) const {
    TokenRow row;
    call_program(fmt::format("The {}", name_), has_other_processes_, [&] { row = parts_->row(place); });
    const auto refuse = [&](const std::string& what, const char* remedy) {
        throw Error(fmt::format("Row {} of the {} {}.", place, name_, what), remedy);
    };
    if (row.input_ids.empty()) refuse("has no ids", "Leave out rows without ids.");
    if (limit_ > 0 && std::ssize(row.input_ids) > limit_)
        refuse(fmt::format("has {} ids, but max_length() is {}", row.input_ids.size(), limit_),
               "Return the length of the longest row from max_length().");
    for (const TokenId id : row.input_ids)
        if (id < 0 || id >= vocab_size_)
            refuse(fmt::format("holds token id {}, but the model's vocab_size is {}", id, vocab_size_),
                   "Use the tokenizer that belongs to this model, or raise vocab_size.");
    if (!row.labels.empty() && row.labels.size() != row.input_ids.size())
        refuse(fmt::format("has {} ids and {} labels", row.input_ids.size(), row.labels.size()),
               "Give a label for every id, or none.");
    for (const TokenId label : row.labels)
        if (label != no_label && (label < 0 || label >= vocab_size_))
            refuse(fmt::format("has the label {}", label),
                   "A label is a token id of the model, or -100 for no target.");
    return row;
}

}  // namespace drover::v1
