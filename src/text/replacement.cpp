#include "text/replacement.h"

namespace drover {

std::unique_ptr<SplitPattern> read_pattern(const JsonFields& component) {
    const JsonFields pattern(component.at("pattern"), component.where() + ".pattern");
    if (const auto wanted = pattern.optional_text("String")) {
        if (wanted->empty()) pattern.wrong("String", "a text of at least one character");
        return text_pattern(*wanted);
    }
    return regex_pattern(pattern.text("Regex"), pattern.where());
}

Replacement::Replacement(const JsonFields& component)
    : pattern_(read_pattern(component)), content_(component.text("content")) {}

void Replacement::apply(std::string& text) const {
    std::vector<Span> matches;
    pattern_->find_all(text, matches);
    if (matches.empty()) return;
    std::string result;
    result.reserve(text.size() + matches.size() * content_.size());
    std::size_t done = 0;
    for (const Span& match : matches) {
        result.append(text, done, match.begin - done).append(content_);
        done = match.end;
    }
    result.append(text, done);
    text = std::move(result);
}

void Replacement::apply(AlignedText& text) const {
    std::vector<Span> matches;
    pattern_->find_all(text.text, matches);
    AlignedRewriter rewriter(text);
    for (const Span& match : matches) {
        rewriter.keep_to(match.begin);
        rewriter.put(content_, match.begin, match.end);
        rewriter.drop_to(match.end);
    }
    rewriter.finish();
}

}  // namespace drover
