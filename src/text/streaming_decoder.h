#pragma once

#include <memory>
#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace drover {

/// Decodes ids that arrive one by one. Bytes of an incomplete character are held back until it is complete,
/// so all returned text is UTF-8. Together it equals what decode returns for all ids (if those form complete
/// characters).
class StreamingDecoder {
  public:
    StreamingDecoder(std::shared_ptr<const Tokenizer> tokenizer, bool skip_special);

    /// The text that this id completes; often empty in scripts whose characters take several tokens.
    std::string push(TokenId id);
    /// Returns the text held back, with U+FFFD for an incomplete character. Then a new text starts.
    std::string finish();

  private:
    /// The part of `text`, the window's text, that has not been returned yet.
    std::string fresh_part(const std::string& text) const;

    std::shared_ptr<const Tokenizer> tokenizer_;
    bool skip_special_;
    std::vector<TokenId> window_;  // ids that must be decoded together: those of `shown_`, then new ones
    std::size_t shown_ids_ = 0;
    int waited_ = 0;     // ids in a row whose text ended with an incomplete character
    std::string shown_;  // text of the first shown_ids_ ids of the window, already returned
};

}  // namespace drover
