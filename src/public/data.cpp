#include "drover/data.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/error.h"
#include "data/datasets/file_rows.h"
#include "data/rows/row_format.h"
#include "public/parts.h"
#include "run/model_source.h"

namespace drover::v1 {

// -------------------------------------------------------------------------------------------------------
// tokenizer

Tokenizer Tokenizer::from_pretrained(const std::string& model_id) {
    Parts parts{load_tokenizer(find_pretrained(model_id, "The tokenizer's model_id")), {}};
    parts.pad = parts.tokenizer->pad();
    return Tokenizer(std::make_shared<const Parts>(std::move(parts)));
}

std::vector<std::int32_t> Tokenizer::operator()(std::string_view text) const {
    std::vector<TokenId> ids;
    parts_->tokenizer->encode(text, SpecialTokens::add, ids);
    return ids;
}

std::string Tokenizer::decode(const std::vector<std::int32_t>& ids, bool skip_special_tokens) const {
    return parts_->tokenizer->decode(ids, skip_special_tokens);
}

std::int64_t Tokenizer::size() const {
    return parts_->tokenizer->size();
}

std::int32_t Tokenizer::eos_token_id() const {
    return parts_->tokenizer->eos().value_or(-1);
}

std::int32_t Tokenizer::pad_token_id() const {
    return parts_->pad.value_or(-1);
}

std::string Tokenizer::eos_token() const {
    if (!parts_->tokenizer->eos())
        throw Error("The tokenizer has no end-of-text token.", "Name another token to pad with.");
    return decode({eos_token_id()}, false);
}

void Tokenizer::add_special_tokens(const std::map<std::string, std::string>& tokens) {
    Parts parts = *parts_;
    for (const auto& [key, text] : tokens) {
        if (key != "pad_token")
            throw Error(fmt::format("add_special_tokens: \"{}\" cannot be set.", key),
                        "Only pad_token can be set.");
        std::vector<TokenId> ids;
        parts.tokenizer->encode(text, SpecialTokens::omit, ids);
        if (ids.size() != 1)
            throw Error(fmt::format("add_special_tokens: \"{}\" is not one token of this tokenizer.", text),
                        "Use an existing token, such as eos_token().");
        parts.pad = ids[0];
    }
    parts_ = std::make_shared<const Parts>(std::move(parts));
}

DataCollatorForLanguageModeling::DataCollatorForLanguageModeling(Tokenizer tokenizer,
                                                                 DataCollatorOptions options)
    : tokenizer_(std::move(tokenizer)), options_(options) {
    if (options_.mlm)
        throw Error("DataCollatorForLanguageModeling: mlm is set, but there are no models for it here.",
                    "Leave mlm off: the models are causal.");
    if (tokenizer_.pad_token_id() < 0)
        throw Error("DataCollatorForLanguageModeling: the tokenizer has no pad token.",
                    "Call tokenizer.add_special_tokens({{\"pad_token\", tokenizer.eos_token()}}) first.");
    if (options_.pad_to_multiple_of < 1)
        throw Error("DataCollatorForLanguageModeling: pad_to_multiple_of is below 1.", "Use 1 or more.");
}

// -------------------------------------------------------------------------------------------------------
// rows

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

std::int64_t Split::size() const {
    return parts_->is_mapped ? static_cast<std::int64_t>(parts_->ids.size())
                             : FileRows(parts_->files.files, parts_->files.options).row_count();
}

const std::vector<std::vector<std::int32_t>>& Split::input_ids() const {
    if (!parts_->is_mapped)
        throw Error("The dataset has no token ids yet.",
                    "Make them: data = data.map([&](const Row& row) { return tokenizer(row[\"text\"]); }).");
    return parts_->ids;
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
                                Split(std::make_shared<const Split::Parts>(Split::Parts{split, false, {}})));
    return dataset;
}

Dataset Dataset::map(const std::function<std::vector<std::int32_t>(const Row&)>& tokenize) const {
    Dataset mapped;
    for (const auto& [name, split] : splits_) {
        Split::Parts parts = *split.parts();
        parts.ids.clear();
        parts.is_mapped = true;
        const std::int64_t rows = FileRows(parts.files.files, parts.files.options).row_count();
        Row::Cursor cursor{parts.files};
        for (; cursor.row < rows; ++cursor.row) parts.ids.push_back(tokenize(Row(cursor)));
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
