#include "text/streaming_decoder.h"

namespace drover {
namespace {

constexpr std::string_view replacement_character = "\xEF\xBF\xBD";
/// A character has four bytes at most, but an id may complete one and begin another; after so many ids in a
/// row that left something incomplete the bytes are taken to be bad.
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
    // The ids of the last piece stay: decoders treat the first token of a text in a way of its own.
    window_.erase(window_.begin(), window_.begin() + static_cast<std::ptrdiff_t>(shown_ids_));
    shown_ids_ = window_.size();
    shown_ = tokenizer_->decode(window_, skip_special_);
    return fresh;
}

std::string StreamingDecoder::fresh_part(const std::string& text) const {
    if (text.starts_with(shown_)) return text.substr(shown_.size());
    // A bad byte spoils the good ones before it, which were handed out already.
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
