#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/regex.h"

namespace drover {

/// A text that was made from another one, and where each of its bytes comes from.
struct AlignedText {
    std::string text;
    std::vector<Span> from;  ///< the bytes of the other text that byte i of this one stands for

    /// `text` itself, as the bytes from `begin` on of the other text.
    static AlignedText unchanged(std::string_view text, std::size_t begin = 0);
    /// What bytes [begin, end) stand for; they are at least one.
    Span source(std::size_t begin, std::size_t end) const { return {from[begin].begin, from[end - 1].end}; }
};

/// Makes the next version of an AlignedText from left to right.
class AlignedRewriter {
  public:
    explicit AlignedRewriter(AlignedText& text) : text_(text) {}
    /// Keeps the bytes up to `end`.
    void keep_to(std::size_t end);
    /// Leaves out the bytes up to `end`.
    void drop_to(std::size_t end) { done_ = end; }
    /// Adds bytes that stand for what [begin, end) of the old version stands for.
    void put(std::string_view bytes, std::size_t begin, std::size_t end);
    /// Keeps the rest, and replaces the old version.
    void finish();

  private:
    AlignedText& text_;
    AlignedText next_;
    std::size_t done_ = 0;
};

}  // namespace drover
