#pragma once

#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "text/regex.h"

namespace drover {

/// A text cut into pieces. Pieces are views of the text, or of `made` where a step changed their characters.
struct Pieces {
    struct Piece {
        std::string_view text;
        bool at_start;  ///< begins where the whole text begins
    };
    std::vector<Piece> list;
    std::vector<Piece> next;  ///< what a step makes, until it replaces `list`
    std::vector<Span> matches;
    std::deque<std::string> made;

    void start_with(std::string_view text, bool at_start);
};

/// Cuts pieces further.
class PreTokenizer {
  public:
    virtual ~PreTokenizer() = default;
    virtual void apply(Pieces& pieces) const = 0;
    /// The first place after `wanted` where a text can be cut into two without changing the pieces, as long
    /// as only the first part counts as the beginning; the text's size when none is known. Lets a long text
    /// be handled part by part.
    virtual std::size_t find_cut(std::string_view text, std::size_t /*wanted*/) const { return text.size(); }
    /// True when the pieces are plain bytes that stand for characters of byte_alphabet.h: the last step left
    /// out the translation.
    virtual bool yields_bytes() const { return false; }
};

/// The "pre_tokenizer" of a tokenizer.json; null when `description` is null. Error names an unsupported type.
/// With `may_yield_bytes` a last step of type ByteLevel leaves out the translation to its alphabet.
std::unique_ptr<PreTokenizer> read_pre_tokenizer(const Json& description, const std::string& where,
                                                 bool may_yield_bytes);

}  // namespace drover
