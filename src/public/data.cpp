#include "drover/data.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "core/error.h"
#include "data/datasets/file_rows.h"
#include "data/rows/row_format.h"
#include "public/parts.h"

namespace drover::v1 {

/// Columns are read in parallel, each from when it is first requested.
struct Row::Cursor {
    const DatasetSplit& files;
    std::int64_t row = 0;

    struct Column {
        std::unique_ptr<FileRows> rows;
        std::unique_ptr<RowSource> source;
        RowBatch batch;
        std::int64_t first = 0;  ///< index of the batch's first row
    };
    std::map<std::string, Column, std::less<>> columns{};

    static constexpr std::size_t rows_at_once = 256;

    Column& open(std::string_view name) {
        ReadOptions options = files.options;
        options.text_column = name;
        Column column{std::make_unique<FileRows>(files.files, options), nullptr, {}, row};
        column.source = column.rows->open(row);
        return columns.emplace(name, std::move(column)).first->second;
    }

    std::string_view text(std::string_view name) {
        const auto found = columns.find(name);
        Column& column = found == columns.end() ? open(name) : found->second;
        while (row >= column.first + static_cast<std::int64_t>(column.batch.size())) {
            column.first += static_cast<std::int64_t>(column.batch.size());
            column.source->next(column.batch, rows_at_once);
            require(column.batch.size() > 0, "a column that ends before the others");
        }
        return column.batch[static_cast<std::size_t>(row - column.first)];
    }
};

std::string_view Row::operator[](std::string_view column) const {
    return cursor_->text(column);
}

std::vector<std::string> Split::column_names() const {
    if (!parts_->files) return {};
    return FileRows(parts_->files->files, parts_->files->options).column_names();
}

void Split::for_each_row(const std::function<void(std::int64_t, const Row&)>& read) const {
    if (!parts_->files)
        throw Error("The rows are token ids already.", "Read rows of text, which Dataset::load() finds.");
    // The places of the chosen rows, in the order of the files, which are read only forwards.
    std::vector<std::int64_t> places(static_cast<std::size_t>(size()));
    std::iota(places.begin(), places.end(), 0);
    std::sort(places.begin(), places.end(),
              [&](std::int64_t a, std::int64_t b) { return parts_->source_row(a) < parts_->source_row(b); });
    Row::Cursor cursor{*parts_->files};
    for (const std::int64_t place : places) {
        cursor.row = parts_->source_row(place);
        read(place, Row(cursor));
    }
}

Dataset Dataset::load(const std::string& name) {
    DatasetRequest request;
    if (std::filesystem::is_regular_file(name))
        request.train_files = {name};
    else
        request.dataset_name = name;
    Dataset dataset;
    for (const DatasetSplit& split : resolve_dataset(request).splits)
        dataset.splits_.emplace(split.name,
                                Split(std::make_shared<const Split::Parts>(Split::Parts{.files = split})));
    return dataset;
}

Dataset Dataset::map(const std::function<std::vector<std::int32_t>(const Row&)>& tokenize) const {
    return map([&](const Row& row) { return TokenRow{.input_ids = tokenize(row)}; });
}

Dataset Dataset::map(const std::function<TokenRow(const Row&)>& tokenize) const {
    Dataset mapped;
    for (const auto& [name, split] : splits_) {
        Split::Parts parts = *split.parts();
        if (!parts.files)
            throw Error(fmt::format("The rows of the split \"{}\" are token ids already.", name),
                        "Map rows of text, which Dataset::load() finds.");
        parts.take(std::vector<TokenRow>(static_cast<std::size_t>(split.size())));
        split.for_each_row([&](std::int64_t place, const Row& row) { parts.put(place, tokenize(row)); });
        mapped.splits_.emplace(name, Split(std::make_shared<const Split::Parts>(std::move(parts))));
    }
    return mapped;
}

const Split& Dataset::operator[](std::string_view split) const {
    const auto found = splits_.find(split);
    if (found == splits_.end())
        throw Error(fmt::format("The dataset has no split \"{}\".", split),
                    fmt::format("It has \"{}\".", fmt::join(split_names(), "\", \"")));
    return found->second;
}

std::vector<std::string> Dataset::split_names() const {
    std::vector<std::string> names;
    for (const auto& [name, split] : splits_) names.push_back(name);
    return names;
}

}  // namespace drover::v1
