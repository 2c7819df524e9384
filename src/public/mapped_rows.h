#pragma once

#include "data/packing/token_file.h"
#include "drover/data.h"

namespace drover::v1 {

/// The mapped rows of a split as a token file that only this process can see.
class MappedRows {
  public:
    /// Error when an id is not below `vocab_size`.
    MappedRows(const Split& split, const drover::Tokenizer& tokenizer, std::int64_t vocab_size);

    const TokenRows& rows() const { return file_->rows(); }
    std::int64_t longest() const { return longest_; }
    /// Equal for equal rows.
    std::string fingerprint() const;

  private:
    std::optional<TokenFile> file_;
    std::int64_t longest_ = 0;
};

}  // namespace drover::v1
