#include <fmt/format.h>

#include <cmath>
#include <numeric>

#include "core/error.h"
#include "core/numpy_permutation.h"
#include "data/datasets/file_rows.h"
#include "drover/data.h"
#include "public/parts.h"

namespace drover::v1 {

TokenDataset::~TokenDataset() = default;

std::int64_t TokenDataset::max_length() const {
    return 0;
}

// -------------------------------------------------------------------------------------------------------
// parts

void Split::Parts::take(std::vector<TokenRow> rows) {
    has_ids = true;
    ids.assign(rows.size(), {});
    labels.clear();
    for (std::size_t i = 0; i < rows.size(); ++i) put(static_cast<std::int64_t>(i), std::move(rows[i]));
}

void Split::Parts::put(std::int64_t place, TokenRow row) {
    const auto index = static_cast<std::size_t>(place);
    ids[index] = std::move(row.input_ids);
    if (!row.labels.empty()) labels.resize(ids.size());
    if (!labels.empty()) labels[index] = std::move(row.labels);
}

TokenRow Split::Parts::row(std::int64_t place) const {
    if (own) return own->row(source_row(place));
    const auto index = static_cast<std::size_t>(place);
    TokenRow row{.input_ids = ids[index]};
    if (!labels.empty()) row.labels = labels[index];
    return row;
}

std::int64_t Split::Parts::size() const {
    if (has_ids) return static_cast<std::int64_t>(ids.size());
    if (chosen) return static_cast<std::int64_t>(chosen->size());
    return own ? own->size() : FileRows(files->files, files->options).row_count();
}

// -------------------------------------------------------------------------------------------------------
// splits

Split Split::from_rows(std::vector<TokenRow> rows) {
    Parts parts;
    parts.take(std::move(rows));
    return Split(std::make_shared<const Parts>(std::move(parts)));
}

Split::Split(std::shared_ptr<const TokenDataset> rows) {
    if (!rows) throw Error("A Split is made of a null TokenDataset.", "Give it a dataset.");
    parts_ = std::make_shared<const Parts>(Parts{.own = std::move(rows)});
}

std::int64_t Split::size() const {
    return parts_->size();
}

const std::vector<std::vector<std::int32_t>>& Split::input_ids() const {
    if (parts_->own)
        throw Error("The rows are made by the program's own dataset, one at a time.",
                    "Read one with split[index].input_ids.");
    parts_->check_has_ids();
    return parts_->ids;
}

TokenRow Split::operator[](std::int64_t index) const {
    if (!parts_->own) parts_->check_has_ids();
    if (index < 0 || index >= size())
        throw Error(fmt::format("There is no row {}.", index), fmt::format("There are {}.", size()));
    return parts_->row(index);
}

void Split::Parts::check_has_ids() const {
    if (!has_ids)
        throw Error("The dataset has no token ids yet.",
                    "Make them: data = data.map([&](const Row& row) { return tokenizer(row[\"text\"]); }).");
}

Split Split::select(const std::vector<std::int64_t>& indices) const {
    const std::int64_t rows = size();
    Parts selected{.files = parts_->files, .own = parts_->own};
    std::vector<TokenRow> taken;
    std::vector<std::int64_t> sources;
    for (const std::int64_t index : indices) {
        if (index < 0 || index >= rows)
            throw Error(fmt::format("select() is given row {}, which is not there.", index),
                        fmt::format("There are {} rows.", rows));
        if (parts_->has_ids) taken.push_back(parts_->row(index));
        sources.push_back(parts_->source_row(index));
    }
    if (parts_->has_ids) selected.take(std::move(taken));
    selected.chosen = std::move(sources);
    return Split(std::make_shared<const Parts>(std::move(selected)));
}

Split Split::select(std::int64_t begin, std::int64_t end) const {
    std::vector<std::int64_t> indices(static_cast<std::size_t>(std::max<std::int64_t>(end - begin, 0)));
    std::iota(indices.begin(), indices.end(), begin);
    return select(indices);
}

Split Split::shuffle(std::uint64_t seed) const {
    return select(numpy_permutation(size(), seed));
}

Dataset Split::train_test_split(double test_size, std::uint64_t seed, bool shuffle) const {
    const std::int64_t rows = size();
    const bool is_share = test_size < 1;
    if (!(test_size > 0) || (!is_share && test_size != std::floor(test_size)))
        throw Error(fmt::format("train_test_split: test_size is {}.", test_size),
                    "Give a share between 0 and 1, or a number of rows.");
    const auto test =
        static_cast<std::int64_t>(is_share ? std::ceil(test_size * static_cast<double>(rows)) : test_size);
    if (test >= rows)
        throw Error(fmt::format("train_test_split: {} of {} rows would be the test's, and none is left to "
                                "train on.",
                                test, rows),
                    "Use a smaller test_size, or more rows.");
    Dataset both;
    const auto add = [&](const char* name, const Split& split) { both.splits_.emplace(name, split); };
    if (shuffle) {
        const Split shuffled = this->shuffle(seed);
        add("test", shuffled.select(0, test));
        add("train", shuffled.select(test, rows));
    } else {
        add("train", select(0, rows - test));
        add("test", select(rows - test, rows));
    }
    return both;
}

}  // namespace drover::v1
