#include "data/datasets/token_datasets.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <sstream>
#include <utility>

#include "core/content_hash.h"
#include "core/error.h"
#include "data/datasets/arrow_tokens.h"
#include "data/packing/token_file.h"
#include "data/readers/file_notes.h"

namespace drover {
namespace {

namespace fs = std::filesystem;

/// Rows of ids as the bytes of a RowBatch.
class IdSource final : public RowSource {
  public:
    IdSource(std::shared_ptr<const TrainingRows> rows, std::int64_t row)
        : rows_(std::move(rows)), row_(row) {}

    void next(RowBatch& batch, std::size_t max_rows) override {
        batch.clear();
        for (; batch.size() < max_rows && row_ < rows_->size(); ++row_) {
            rows_->read(row_, ids_, labels_);
            batch.add({reinterpret_cast<const char*>(ids_.data()), ids_.size() * sizeof(TokenId)});
        }
    }

  private:
    std::shared_ptr<const TrainingRows> rows_;
    std::int64_t row_;
    std::vector<TokenId> ids_, labels_;
};

class IdDataset final : public RowDataset {
  public:
    IdDataset(std::shared_ptr<const TrainingRows> rows, TokenForm form, std::string fingerprint)
        : rows_(std::move(rows)), form_(std::move(form)), fingerprint_(std::move(fingerprint)) {}

    std::unique_ptr<RowSource> open(std::int64_t first_row) const override {
        return std::make_unique<IdSource>(rows_, first_row);
    }
    std::int64_t row_count() const override { return rows_->size(); }
    const std::vector<std::string>& column_names() const override { return columns_; }
    const std::string& text_column() const override { return columns_.front(); }
    std::string fingerprint() const override { return fingerprint_; }
    std::string quick_fingerprint() const override { return fingerprint_; }
    const TokenForm* token_form() const override { return &form_; }
    std::shared_ptr<const TrainingRows> token_rows() const override { return rows_; }

  private:
    std::shared_ptr<const TrainingRows> rows_;
    TokenForm form_;
    std::string fingerprint_;
    std::vector<std::string> columns_{"input_ids"};
};

TokenForm form_of(const TokenFile& file) {
    const TokenFileHeader& header = file.rows().header();
    return {.name = file.path().string(),
            .packing = header.packing,
            .block_size = static_cast<std::int64_t>(header.block_size),
            .workers = header.workers,
            .tokenizer = header.tokenizer,
            .largest_id = static_cast<std::int64_t>(header.largest_id),
            .rows_are_final = header.packing != Packing::none || header.has_marks,
            .may_have_labels = header.has_marks};
}

/// A summary of an Arrow file's rows, from reading it once.
struct IdSummary {
    std::int64_t rows = 0, shortest = 0, longest = 0, largest_id = 0;

    static IdSummary of(ArrowTokenDataset& rows) {
        IdSummary found{.rows = rows.size()};
        ArrowTokenDataset::Block block;
        for (std::int64_t row = 0; row < rows.size(); ++row) {
            rows.read(row, block);
            const auto length = static_cast<std::int64_t>(block.ids.size());
            found.shortest = row == 0 ? length : std::min(found.shortest, length);
            found.longest = std::max(found.longest, length);
            for (const std::int32_t id : block.ids)
                found.largest_id = std::max<std::int64_t>(found.largest_id, id);
            for (const std::int32_t id : block.labels)
                found.largest_id = std::max<std::int64_t>(found.largest_id, id);
        }
        return found;
    }
    /// Merges another summary; one without rows does not affect the lengths.
    void add(const IdSummary& other) {
        if (other.rows == 0) return;
        shortest = rows == 0 ? other.shortest : std::min(shortest, other.shortest);
        longest = std::max(longest, other.longest);
        largest_id = std::max(largest_id, other.largest_id);
        rows += other.rows;
    }
    std::string text() const { return fmt::format("{} {} {} {}", rows, shortest, longest, largest_id); }
    bool read(const std::string& text) {
        std::istringstream in(text);
        return static_cast<bool>(in >> rows >> shortest >> longest >> largest_id);
    }
};

class ArrowRows final : public TrainingRows {
  public:
    ArrowRows(const std::vector<fs::path>& files, const FileNotes& notes) : rows_(files) {
        for (const fs::path& path : files) {
            const auto look = [&] {
                ArrowTokenDataset file(std::vector<fs::path>{path});
                return IdSummary::of(file);
            };
            IdSummary found;
            if (!found.read(notes.remember(path, "id_rows", [&] { return look().text(); }))) found = look();
            all_.add(found);
        }
    }

    const IdSummary& summary() const { return all_; }
    std::int64_t size() const override { return rows_.size(); }
    std::int64_t length(std::int64_t row) const override {
        if (all_.shortest == all_.longest) return all_.longest;
        std::vector<TokenId> ids, labels;
        read(row, ids, labels);
        return static_cast<std::int64_t>(ids.size());
    }
    void read(std::int64_t row, std::vector<TokenId>& ids, std::vector<TokenId>& labels) const override {
        const std::lock_guard lock(mutex_);
        rows_.read(row, block_);
        ids = block_.ids;
        labels = block_.labels;
    }
    std::int64_t longest() const override { return all_.longest; }

  private:
    mutable std::mutex mutex_;  ///< an Arrow file allows one thread at a time
    mutable ArrowTokenDataset rows_;
    mutable ArrowTokenDataset::Block block_;
    IdSummary all_;
};

}  // namespace

SharedRows open_token_files(const std::vector<fs::path>& files, const fs::path& notes_folder) {
    require(!files.empty(), "a split without files");
    const FileNotes notes(notes_folder);
    std::vector<std::shared_ptr<const TrainingRows>> opened;
    TokenForm form;
    ContentHash hash;
    hash.add("token files 1");
    for (const fs::path& path : files) {
        const auto file = std::make_shared<const TokenFile>(open_verified_token_file(path, notes));
        const TokenForm own = form_of(*file);
        if (opened.empty()) form = own;
        if (const std::string what = own.difference(form); !what.empty())
            throw Error(fmt::format("{} and {} were made with different {}.", form.name, own.name, what),
                        "Make them again alike, or train on one of them.");
        form.largest_id = std::max(form.largest_id, own.largest_id);
        hash.add(file->rows().header().serialize());
        opened.emplace_back(file, &file->rows());
    }
    return std::make_shared<IdDataset>(joined_training_rows(std::move(opened)), form, hash.hex());
}

SharedRows open_arrow_tokens(const std::vector<fs::path>& files, const fs::path& notes_folder) {
    const FileNotes notes(notes_folder);
    const auto rows = std::make_shared<ArrowRows>(files, notes);
    const IdSummary& found = rows->summary();
    if (rows->size() == 0)
        throw Error(fmt::format("{} holds no rows.", files.front().string()),
                    "Put data into it, or name other files.");
    ContentHash hash;
    hash.add("arrow tokens 1");
    for (const fs::path& path : files) hash.add(notes.hash(path));
    const bool blocks = found.shortest == found.longest;
    return std::make_shared<IdDataset>(rows,
                                       TokenForm{.name = files.front().string(),
                                                 .packing = blocks ? Packing::hf : Packing::none,
                                                 .block_size = blocks ? found.longest : 0,
                                                 .largest_id = found.largest_id,
                                                 .rows_are_final = true,
                                                 .may_have_labels = true},
                                       hash.hex());
}

}  // namespace drover
