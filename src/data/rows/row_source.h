#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/rows/training_rows.h"

namespace drover {

/// How rows of token ids were made.
struct TokenForm {
    std::string name;  ///< of the first file
    Packing packing = Packing::hf;
    std::int64_t block_size = 0;  ///< 0 when row lengths vary
    std::int64_t workers = 1;     ///< that blocks of Packing::hf were made for (preprocessing_num_workers)
    std::string tokenizer{};      ///< its fingerprint; empty if the files do not tell
    std::int64_t largest_id = 0;
    bool rows_are_final = false;  ///< blocks or examples; otherwise a row is a text that must still be packed
    bool may_have_labels = false;

    /// Why rows of both may not be combined, as in "made with different …"; empty if they may.
    std::string difference(const TokenForm& other) const {
        if (tokenizer != other.tokenizer) return "tokenizers";
        if (packing != other.packing) return "packings";
        return block_size != other.block_size ? "block sizes" : "";
    }
};

/// Consecutive rows of text, back to back in one buffer.
struct RowBatch {
    std::string bytes;
    std::vector<std::size_t> ends;  ///< row i is bytes [ends[i-1], ends[i])

    std::size_t size() const { return ends.size(); }
    std::string_view operator[](std::size_t i) const {
        const std::size_t begin = i == 0 ? 0 : ends[i - 1];
        return std::string_view(bytes).substr(begin, ends[i] - begin);
    }
    void add(std::string_view row) {
        bytes.append(row);
        ends.push_back(bytes.size());
    }
    void clear() {
        bytes.clear();
        ends.clear();
    }
};

/// The rows of one column of one split, in order, read on demand: memory does not grow with the corpus. For
/// one thread at a time.
class RowSource {
  public:
    virtual ~RowSource() = default;

    /// Replaces `batch` by the next rows, at most `max_rows`; an empty batch means the end. The Error for
    /// invalid UTF-8, a null text, broken quoting and the like names the file and the line or row.
    virtual void next(RowBatch& batch, std::size_t max_rows) = 0;
};

/// A split whose rows can be read any number of times.
class RowDataset {
  public:
    virtual ~RowDataset() = default;

    /// Rows from `first_row` on; earlier rows are skipped as cheaply as the format allows.
    virtual std::unique_ptr<RowSource> open(std::int64_t first_row) const = 0;
    /// Number of rows; may read the whole corpus the first time.
    virtual std::int64_t row_count() const = 0;
    /// The names of all columns, in order of first appearance, and the one that is read.
    virtual const std::vector<std::string>& column_names() const = 0;
    virtual const std::string& text_column() const = 0;
    /// Changes whenever a row might have changed: a hash, in hexadecimal, of the files and of how they are
    /// read.
    virtual std::string fingerprint() const = 0;
    /// The same from the files' names and sizes, without reading them: it may miss a change.
    virtual std::string quick_fingerprint() const = 0;

    /// Null for rows of text. Otherwise rows are token ids: open() gives their bytes (of TokenId), and
    /// token_rows() allows random access.
    virtual const TokenForm* token_form() const { return nullptr; }
    virtual std::shared_ptr<const TrainingRows> token_rows() const { return nullptr; }
};

}  // namespace drover
