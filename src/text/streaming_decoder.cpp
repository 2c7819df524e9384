#include "text/streaming_decoder.h"

#include "text/utf8.h"

namespace drover {
namespace {

/// A character has at most four bytes, but an id may complete one and start another. After this many
/// consecutive ids that left a character incomplete, the bytes are considered invalid.
constexpr int longest_wait = 16;

}  // namespace

StreamingDecoder::StreamingDecoder(std::shared_ptr<const Tokenizer> tokenizer, bool skip_special)
    : tokenizer_(std::move(tokenizer)), skip_special_(skip_special) {}

std::string StreamingDecoder::push(TokenId id) {
    window_.push_back(id);
    const std::string text = tokenizer_->decode(window_, skip_special_);
    waited_ = text.ends_with(replacement_character) ? waited_ + 1 : 0;
    if (waited_ > 0 && waited_ < longest_wait) return {};
    waited_ = 0;
    std::string fresh = fresh_part(text);
    if (fresh.empty()) return {};
    // The ids of the last piece are kept: decoders treat the first token of a text differently.
    window_.erase(window_.begin(), window_.begin() + static_cast<std::ptrdiff_t>(shown_ids_));
    shown_ids_ = window_.size();
    shown_ = tokenizer_->decode(window_, skip_special_);
    return fresh;
}

std::string StreamingDecoder::fresh_part(const std::string& text) const {
    if (text.starts_with(shown_)) return text.substr(shown_.size());
    // A bad byte also invalidates the good ones before it, which were already returned.
    return tokenizer_->decode(std::span(window_).subspan(shown_ids_), skip_special_);
}

std::string StreamingDecoder::finish() {
    const std::string text = tokenizer_->decode(window_, skip_special_);
    std::string rest = fresh_part(text);
    window_.clear();
    shown_ids_ = 0;
    waited_ = 0;
    shown_.clear();
    return rest;
}

}  // namespace drover
