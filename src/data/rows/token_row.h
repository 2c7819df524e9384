#pragma once

#include <cstdint>
#include <vector>

#include "text/tokenizer.h"

namespace drover {

/// A row to train on.
struct TokenRow {
    std::vector<TokenId> ids;
    std::vector<TokenId> labels{};          ///< one for each id; empty: every id is its own
    std::vector<std::int32_t> documents{};  ///< lengths of the sequences in it, which do not see each other;
                                            ///< empty: it is one
};

/// Rows that are made while they are used.
class TokenRowStream {
  public:
    virtual ~TokenRowStream() = default;

    /// Replaces `row` by the next one; false at the end. Rethrows what making it threw.
    virtual bool next(TokenRow& row) = 0;
};

}  // namespace drover
