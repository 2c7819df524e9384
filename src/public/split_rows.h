#pragma once

#include "data/rows/training_rows.h"
#include "drover/data.h"

namespace drover::v1 {

/// The rows of a split, checked for a model's vocabulary: those in memory now, those of a program's own
/// dataset whenever they are read. Rows in memory without ids are left out.
class SplitRows final : public TrainingRows {
  public:
    /// `name` is the split's in errors ("train_dataset"). Error if a row cannot be trained on, or none has a
    /// token to predict.
    SplitRows(const Split& split, std::string name, std::int64_t vocab_size, bool has_other_processes);

    std::int64_t size() const override { return static_cast<std::int64_t>(places_.size()); }
    std::int64_t length(std::int64_t row) const override;
    void read(std::int64_t row, std::vector<TokenId>& ids, std::vector<TokenId>& labels) const override;
    std::int64_t longest() const override { return longest_; }

    /// Equal for equal rows; of a dataset that is not read before it is used, only the first and the last
    /// row count.
    const std::string& fingerprint() const { return fingerprint_; }

  private:
    TokenRow checked_row(std::int64_t place) const;

    std::shared_ptr<const Split::Parts> parts_;
    std::string name_;
    std::int64_t vocab_size_;
    bool has_other_processes_;
    std::vector<std::int64_t> places_;   // of the rows in the split
    std::vector<std::int32_t> lengths_;  // empty: they are not known before a row is read
    std::int64_t limit_ = 0;             // max_length() of the program's dataset; 0: all rows were read
    std::int64_t longest_ = 0;
    std::string fingerprint_;
};

}  // namespace drover::v1
