#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace drover {

/// Rows of token ids for batches, readable in any order and from any thread.
class TrainingRows {
  public:
    virtual ~TrainingRows() = default;

    virtual std::int64_t size() const = 0;
    /// Number of tokens in a row.
    virtual std::int64_t length(std::int64_t row) const = 0;
    /// Replaces `ids` and `labels` by the row's. Labels are as in Hugging Face (aligned with the ids, −100
    /// for no target), and empty if every id is its own label.
    virtual void read(std::int64_t row, std::vector<TokenId>& ids, std::vector<TokenId>& labels) const = 0;

    /// Replaces `lengths` by those of the documents that the row consists of, in order: attention, positions
    /// and targets stay inside a document. Empty: the row is one.
    virtual void documents(std::int64_t row, std::vector<std::int32_t>& lengths) const;

    /// Lengths of all rows.
    std::vector<std::int64_t> lengths() const;
    /// An upper bound of the row lengths: the longest row, here or among the rows that these were taken from;
    /// 0 if there are no rows.
    virtual std::int64_t longest() const;
};

/// Rows [begin, end) of `rows`.
std::shared_ptr<const TrainingRows> training_row_range(std::shared_ptr<const TrainingRows> rows,
                                                       std::int64_t begin, std::int64_t end);

/// The rows, each cut off after its first `longest` ids (and labels).
std::shared_ptr<const TrainingRows> cut_training_rows(std::shared_ptr<const TrainingRows> rows,
                                                      std::int64_t longest);

/// The rows of all parts, one after the other.
std::shared_ptr<const TrainingRows> joined_training_rows(
    std::vector<std::shared_ptr<const TrainingRows>> parts);

/// How the ids of text rows become training rows.
enum class Packing : std::uint32_t {
    hf = 1,        ///< as run_clm: of every 1,000 rows, the rest that does not fill a block is dropped
    lossless = 2,  ///< one stream cut into blocks; nothing is dropped
    none = 3,      ///< each row of text is an example
};

std::string_view packing_name(Packing packing);
/// `where` (a flag) is named in the UsageError.
Packing packing_from_name(std::string_view name, std::string_view where);

}  // namespace drover
