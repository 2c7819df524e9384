#pragma once

#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "text/aligned_text.h"

namespace drover {

/// A text cut into pieces. Pieces are views of the text, or of `made` if a step changed their characters.
struct Pieces {
    struct Piece {
        std::string_view text;
        bool at_start;         ///< starts where the whole text starts
        std::size_t made = 0;  ///< 0: a view of the text; n: of the n-th text in `made`
    };
    std::vector<Piece> list;
    std::vector<Piece> next;  ///< a step's output, until it replaces `list`
    std::vector<Span> matches;
    std::deque<std::string> made;
    bool traced = false;  ///< `origins` are wanted
    /// If traced: for each text in `made`, the bytes of the original that its bytes stand for.
    std::deque<std::vector<Span>> origins;

    void start_with(std::string_view text, bool at_start, bool trace = false);
    /// The bytes of the text that byte `i` of a piece stands for; needs `traced`.
    Span origin(const Piece& piece, std::size_t i) const;
    /// Those of its first character, which is what a prefix stands for.
    Span first_character(const Piece& piece) const;
    /// Makes the last text of `made` that of a piece. If traced, its origins are at the end of `origins`.
    void take_made(Piece& piece);

  private:
    std::string_view text_;
};

/// Cuts pieces further.
class PreTokenizer {
  public:
    virtual ~PreTokenizer() = default;
    virtual void apply(Pieces& pieces) const = 0;
    /// The first position after `wanted` where a text can be cut in two without changing the pieces, provided
    /// that only the first part counts as the start of a text; the text's size if none is known. Allows long
    /// texts to be processed in parts.
    virtual std::size_t find_cut(std::string_view text, std::size_t /*wanted*/) const { return text.size(); }
    /// True if the pieces are plain bytes that represent characters of byte_alphabet.h: the last step skipped
    /// the translation.
    virtual bool yields_bytes() const { return false; }
};

/// The "pre_tokenizer" of a tokenizer.json; null if `description` is null. Error names an unsupported type.
/// With `may_yield_bytes`, a last step of type ByteLevel skips the translation to its alphabet.
std::unique_ptr<PreTokenizer> read_pre_tokenizer(const Json& description, const std::string& where,
                                                 bool may_yield_bytes);

}  // namespace drover
