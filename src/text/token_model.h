#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/vocabulary.h"
#include "text/word_cache.h"

namespace drover {

/// What encoding one text needs beside the tokenizer: kept from call to call so that words are found again
/// and nothing is allocated. For one thread at a time, and for one tokenizer.
struct EncodeScratch {
    WordCache words;
    std::vector<TokenId> symbols;
    std::vector<std::uint32_t> ranks, next, previous;
    std::vector<std::uint64_t> heap;
    std::string normalized;
};

/// The model of a tokenizer: ids of one piece of text.
class TokenModel {
  public:
    virtual ~TokenModel() = default;
    /// Appends the ids of `piece`, which is not empty and valid UTF-8 as a whole text, though not each piece.
    virtual void encode(std::string_view piece, EncodeScratch& scratch, std::vector<TokenId>& ids) const = 0;
    virtual const Vocabulary& vocabulary() const = 0;
};

}  // namespace drover
