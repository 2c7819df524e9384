#include "text/aligned_text.h"

#include <utility>

namespace drover {

AlignedText AlignedText::unchanged(std::string_view text, std::size_t begin) {
    AlignedText same{std::string(text), {}};
    same.from.reserve(text.size());
    for (std::size_t i = begin; i < begin + text.size(); ++i) same.from.push_back({i, i + 1});
    return same;
}

void AlignedRewriter::keep_to(std::size_t end) {
    next_.text.append(text_.text, done_, end - done_);
    for (; done_ < end; ++done_) next_.from.push_back(text_.from[done_]);
}

void AlignedRewriter::put(std::string_view bytes, std::size_t begin, std::size_t end) {
    next_.text += bytes;
    next_.from.insert(next_.from.end(), bytes.size(), text_.source(begin, end));
}

void AlignedRewriter::finish() {
    keep_to(text_.text.size());
    text_ = std::move(next_);
}

}  // namespace drover
