#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/regex.h"
#include "text/vocabulary.h"
#include "text/word_cache.h"

namespace drover {

/// Working memory for encoding, kept between calls so that words are cached and nothing is allocated. For one
/// thread at a time, and for one tokenizer.
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
    /// Appends the ids of `piece`, which is not empty. The whole text is valid UTF-8, but a piece need not
    /// be.
    virtual void encode(std::string_view piece, EncodeScratch& scratch, std::vector<TokenId>& ids) const = 0;
    /// The same, and appends for each id the bytes of `piece` that it stands for.
    virtual void encode(std::string_view piece, EncodeScratch& scratch, std::vector<TokenId>& ids,
                        std::vector<Span>& spans) const = 0;
    virtual const Vocabulary& vocabulary() const = 0;
};

}  // namespace drover
