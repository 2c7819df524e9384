#include "text/pre_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>

#include "text/byte_alphabet.h"
#include "text/char_class.h"
#include "text/replacement.h"
#include "text/split_pattern.h"
#include "text/utf8.h"

namespace drover {

void Pieces::start_with(std::string_view text, bool at_start, bool trace) {
    traced = trace;
    list.assign(1, {text, at_start});
    made.clear();
    origins.clear();
    text_ = text;
}

Span Pieces::origin(const Piece& piece, std::size_t i) const {
    const char* const whole = piece.made == 0 ? text_.data() : made[piece.made - 1].data();
    const std::size_t at = static_cast<std::size_t>(piece.text.data() - whole) + i;
    return piece.made == 0 ? Span{at, at + 1} : origins[piece.made - 1][at];
}

Span Pieces::first_character(const Piece& piece) const {
    const unsigned length = std::max(decode_utf8(piece.text).length, 1u);
    return {origin(piece, 0).begin, origin(piece, length - 1).end};
}

void Pieces::take_made(Piece& piece) {
    piece.text = made.back();
    piece.made = made.size();
}

namespace {

enum class Behavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };

Behavior read_behavior(const JsonFields& fields, std::string_view otherwise) {
    const std::string name = fields.optional_text("behavior").value_or(std::string(otherwise));
    if (name == "Removed") return Behavior::removed;
    if (name == "Isolated") return Behavior::isolated;
    if (name == "MergedWithPrevious") return Behavior::merged_with_previous;
    if (name == "MergedWithNext") return Behavior::merged_with_next;
    if (name == "Contiguous") return Behavior::contiguous;
    fields.wrong("behavior", "one of Removed, Isolated, MergedWithPrevious, MergedWithNext and Contiguous");
}

/// Cuts a piece at the matches of a pattern.
class Splitter {
  public:
    Splitter(std::unique_ptr<SplitPattern> pattern, Behavior behavior, bool invert = false)
        : pattern_(std::move(pattern)), behavior_(behavior), invert_(invert) {}

    /// Appends the parts of `piece` to pieces.next.
    void split(const Pieces::Piece& piece, Pieces& pieces) const {
        pieces.matches.clear();
        pattern_->find_all(piece.text, pieces.matches);
        const std::size_t first = pieces.next.size();
        std::size_t done = 0;
        bool last_matched = false;
        for (const Span& match : pieces.matches) {
            if (match.begin > done) add(piece, {done, match.begin}, invert_, first, last_matched, pieces);
            add(piece, match, !invert_, first, last_matched, pieces);
            done = match.end;
        }
        if (done < piece.text.size())
            add(piece, {done, piece.text.size()}, invert_, first, last_matched, pieces);
    }

    std::size_t find_cut(std::string_view text, std::size_t wanted) const {
        const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
        // Other behaviours would join pieces across the cut.
        if (behavior_ != Behavior::isolated || !pattern_->allows_cut_between_words()) return text.size();
        for (std::size_t i = std::max<std::size_t>(wanted, 1); i + 1 < text.size(); ++i)
            if (text[i] == ' ' && is_letter(text[i - 1]) && is_letter(text[i + 1])) return i;
        return text.size();
    }

  private:
    void add(const Pieces::Piece& whole, Span span, bool matched, std::size_t first, bool& last_matched,
             Pieces& pieces) const {
        const bool has_last = pieces.next.size() > first;
        bool join = false;
        switch (behavior_) {
            case Behavior::isolated:
                break;
            case Behavior::removed:
                if (matched) return;
                break;
            case Behavior::merged_with_previous:
                join = matched && !last_matched;
                break;
            case Behavior::merged_with_next:
                join = !matched && last_matched;
                break;
            case Behavior::contiguous:
                join = matched == last_matched;
                break;
        }
        last_matched = matched;
        if (join && has_last) {
            std::string_view& text = pieces.next.back().text;
            text = {text.data(), text.size() + (span.end - span.begin)};
        } else {
            pieces.next.push_back({whole.text.substr(span.begin, span.end - span.begin),
                                   whole.at_start && span.begin == 0, whole.made});
        }
    }

    std::unique_ptr<SplitPattern> pattern_;
    Behavior behavior_;
    bool invert_;
};

class Split : public PreTokenizer {
  public:
    explicit Split(Splitter splitter) : splitter_(std::move(splitter)) {}
    void apply(Pieces& pieces) const override {
        pieces.next.clear();
        for (const Pieces::Piece& piece : pieces.list) splitter_.split(piece, pieces);
        pieces.list.swap(pieces.next);
    }
    std::size_t find_cut(std::string_view text, std::size_t wanted) const override {
        return splitter_.find_cut(text, wanted);
    }

  private:
    Splitter splitter_;
};

class ByteLevelPreTokenizer : public PreTokenizer {
  public:
    ByteLevelPreTokenizer(const JsonFields& fields, bool yields_bytes)
        : add_prefix_space_(fields.flag("add_prefix_space", true)), yields_bytes_(yields_bytes) {
        if (fields.flag("use_regex", true))
            splitter_ =
                std::make_unique<Splitter>(regex_pattern(gpt2_pattern, fields.where()), Behavior::isolated);
    }
    bool yields_bytes() const override { return yields_bytes_; }
    /// The second part starts with a space, so none is inserted before it.
    std::size_t find_cut(std::string_view text, std::size_t wanted) const override {
        return splitter_ ? splitter_->find_cut(text, wanted) : text.size();
    }
    void apply(Pieces& pieces) const override {
        pieces.next.clear();
        for (Pieces::Piece piece : pieces.list) {
            if (add_prefix_space_ && !piece.text.starts_with(' ')) add_space(piece, pieces);
            if (splitter_)
                splitter_->split(piece, pieces);
            else
                pieces.next.push_back(piece);
        }
        if (!yields_bytes_)
            for (Pieces::Piece& piece : pieces.next) translate(piece, pieces);
        pieces.list.swap(pieces.next);
    }

  private:
    static void add_space(Pieces::Piece& piece, Pieces& pieces) {
        pieces.made.emplace_back(1, ' ').append(piece.text);
        if (pieces.traced) {
            std::vector<Span> from;
            if (!piece.text.empty()) from.push_back(pieces.first_character(piece));
            for (std::size_t i = 0; i < piece.text.size(); ++i) from.push_back(pieces.origin(piece, i));
            pieces.origins.push_back(std::move(from));
        }
        pieces.take_made(piece);
    }
    static void translate(Pieces::Piece& piece, Pieces& pieces) {
        pieces.made.push_back(bytes_to_alphabet(piece.text));
        if (pieces.traced) {
            std::vector<Span> from;
            for (std::size_t i = 0; i < piece.text.size(); ++i)
                from.insert(from.end(), bytes_to_alphabet(piece.text.substr(i, 1)).size(),
                            pieces.origin(piece, i));
            pieces.origins.push_back(std::move(from));
        }
        pieces.take_made(piece);
    }

    bool add_prefix_space_, yields_bytes_;
    std::unique_ptr<Splitter> splitter_;
};

class MetaspacePreTokenizer : public PreTokenizer {
  public:
    explicit MetaspacePreTokenizer(const JsonFields& fields) : replacement_(fields.text("replacement")) {
        if (replacement_.empty()) fields.wrong("replacement", "a character");
        // Files older than prepend_scheme have add_prefix_space.
        const std::string scheme = fields.optional_text("prepend_scheme")
                                       .value_or(fields.flag("add_prefix_space", true) ? "always" : "never");
        if (scheme != "always" && scheme != "first" && scheme != "never")
            fields.wrong("prepend_scheme", "one of always, first and never");
        always_ = scheme == "always";
        first_ = scheme == "first";
        if (fields.flag("split", true))
            splitter_ = std::make_unique<Splitter>(text_pattern(replacement_), Behavior::merged_with_next);
    }
    void apply(Pieces& pieces) const override {
        pieces.next.clear();
        for (Pieces::Piece piece : pieces.list) {
            std::string& text = pieces.made.emplace_back();
            text.reserve(piece.text.size() + piece.text.size() / 2);
            const bool marked = piece.text.starts_with(' ') || piece.text.starts_with(replacement_);
            const bool prefixed = !marked && (always_ || (first_ && piece.at_start));
            if (prefixed) text = replacement_;
            for (std::size_t i = 0; i < piece.text.size();) {
                const std::size_t space = std::min(piece.text.find(' ', i), piece.text.size());
                text.append(piece.text, i, space - i);
                if (space < piece.text.size()) text += replacement_;
                i = space + 1;
            }
            if (pieces.traced) trace(piece, prefixed, pieces);
            pieces.take_made(piece);
            if (splitter_)
                splitter_->split(piece, pieces);
            else
                pieces.next.push_back(piece);
        }
        pieces.list.swap(pieces.next);
    }

  private:
    void trace(const Pieces::Piece& piece, bool prefixed, Pieces& pieces) const {
        std::vector<Span> from;
        if (prefixed && !piece.text.empty()) from.assign(replacement_.size(), pieces.first_character(piece));
        for (std::size_t i = 0; i < piece.text.size(); ++i)
            from.insert(from.end(), piece.text[i] == ' ' ? replacement_.size() : 1, pieces.origin(piece, i));
        pieces.origins.push_back(std::move(from));
    }

    std::string replacement_;
    bool always_, first_;
    std::unique_ptr<Splitter> splitter_;
};

class SequencePreTokenizer : public PreTokenizer {
  public:
    SequencePreTokenizer(const JsonFields& fields, bool may_yield_bytes) {
        const Json& members = fields.list("pretokenizers");
        for (std::size_t i = 0; i < members.size(); ++i)
            if (auto member = read_pre_tokenizer(members[i], fmt::format("{}[{}]", fields.where(), i),
                                                 may_yield_bytes && i + 1 == members.size()))
                members_.push_back(std::move(member));
    }
    bool yields_bytes() const override { return !members_.empty() && members_.back()->yields_bytes(); }
    void apply(Pieces& pieces) const override {
        for (const auto& member : members_) member->apply(pieces);
    }
    /// The members after the first see pieces that the cut does not affect.
    std::size_t find_cut(std::string_view text, std::size_t wanted) const override {
        return members_.empty() ? text.size() : members_.front()->find_cut(text, wanted);
    }

  private:
    std::vector<std::unique_ptr<PreTokenizer>> members_;
};

std::unique_ptr<PreTokenizer> split(std::unique_ptr<SplitPattern> pattern, Behavior behavior,
                                    bool invert = false) {
    return std::make_unique<Split>(Splitter(std::move(pattern), behavior, invert));
}

/// Applies the first, then the second.
class Both : public PreTokenizer {
  public:
    Both(std::unique_ptr<PreTokenizer> first, std::unique_ptr<PreTokenizer> second)
        : first_(std::move(first)), second_(std::move(second)) {}
    void apply(Pieces& pieces) const override {
        first_->apply(pieces);
        second_->apply(pieces);
    }

  private:
    std::unique_ptr<PreTokenizer> first_, second_;
};

}  // namespace

std::unique_ptr<PreTokenizer> read_pre_tokenizer(const Json& description, const std::string& where,
                                                 bool may_yield_bytes) {
    using namespace char_class;
    if (description.is_null()) return nullptr;
    const JsonFields fields(description, where);
    const std::string type = fields.text("type");
    if (type == "Sequence") return std::make_unique<SequencePreTokenizer>(fields, may_yield_bytes);
    if (type == "ByteLevel") return std::make_unique<ByteLevelPreTokenizer>(fields, may_yield_bytes);
    if (type == "Metaspace") return std::make_unique<MetaspacePreTokenizer>(fields);
    if (type == "Split")
        return split(read_pattern(fields), read_behavior(fields, "missing"), fields.flag("invert", false));
    if (type == "Digits")
        return split(class_pattern(number),
                     fields.flag("individual_digits", false) ? Behavior::isolated : Behavior::contiguous);
    if (type == "Punctuation")
        return split(class_pattern(punctuation, true), read_behavior(fields, "Isolated"));
    if (type == "WhitespaceSplit") return split(class_pattern(space), Behavior::removed);
    if (type == "Whitespace") return split(words_pattern(), Behavior::removed, true);
    if (type == "CharDelimiterSplit") {
        const std::string delimiter = fields.text("delimiter");
        if (delimiter.empty()) fields.wrong("delimiter", "a character");
        return split(text_pattern(delimiter), Behavior::removed);
    }
    if (type == "BertPreTokenizer")
        return std::make_unique<Both>(split(class_pattern(space), Behavior::removed),
                                      split(class_pattern(punctuation, true), Behavior::isolated));
    unsupported_component(fields, type);
}

}  // namespace drover
