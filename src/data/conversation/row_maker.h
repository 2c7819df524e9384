#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "data/conversation/document_packer.h"

namespace drover {

/// What became of the examples of a dataset.
struct SftReport {
    std::int64_t examples = 0;
    std::int64_t rows = 0;
    std::int64_t tokens = 0;         ///< in rows
    std::int64_t labels = 0;         ///< tokens of rows that are learned
    std::int64_t cut = 0;            ///< examples that were too long
    std::int64_t dropped = 0;        ///< examples in which nothing was left to learn
    std::int64_t first_dropped = 0;  ///< the number of the first of them, from 1
    std::int64_t lost = 0;           ///< prompts whose ids do not begin those of prompt and completion
    std::int64_t first_lost = 0;
    std::string lost_prompt{};  ///< the end of the first of them that is not in the example

    std::string to_text() const;
    /// Nothing is known if the text is not one.
    static SftReport from_text(const std::string& text);
    /// Sentences that the user should read; `split` begins each.
    std::vector<std::string> warnings(std::string_view split, const SftOptions& options) const;
};

/// Puts examples into rows, and counts. With packing a group of examples is packed at a time.
class RowMaker {
  public:
    using Take = std::function<void(TokenRow&& row)>;

    /// All arguments must outlive this object.
    RowMaker(const SftOptions& options, SftReport& report, Take take)
        : options_(options), report_(report), take_(std::move(take)) {}

    /// Examples are counted in the order of the dataset.
    void count(const TokenizedExample& example);
    void place(TokenizedExample& example);
    void end_group();

  private:
    void give(TokenRow&& row);

    const SftOptions& options_;
    SftReport& report_;
    Take take_;
    std::vector<TokenizedExample> group_;
};

}  // namespace drover
