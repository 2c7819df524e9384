#pragma once

#include <memory>
#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace drover {

/// Text of ids that come one by one. Bytes of a character that is not complete are held back until it is, so
/// everything handed out is UTF-8; together it is what decode gives for all ids (where those are whole
/// characters).
class StreamingDecoder {
  public:
    StreamingDecoder(std::shared_ptr<const Tokenizer> tokenizer, bool skip_special);

    /// The text that this id completes; often empty in scripts whose characters take several tokens.
    std::string push(TokenId id);
    /// What was held back, with U+FFFD where a character is not complete. Afterwards a new text begins.
    std::string finish();

  private:
    /// What `text`, that of the window, has beyond what was handed out.
    std::string fresh_part(const std::string& text) const;

    std::shared_ptr<const Tokenizer> tokenizer_;
    bool skip_special_;
    std::vector<TokenId> window_;  // ids whose text depends on each other: those of `shown_`, then new ones
    std::size_t shown_ids_ = 0;
    std::string shown_;  // text of the first shown_ids_ ids of the window, handed out before
};

}  // namespace drover
