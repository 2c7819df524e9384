#include "text/normalizer.h"

#include <fmt/format.h>
#include <unicode/locid.h>
#include <unicode/normalizer2.h>
#include <unicode/unistr.h>
#include <unicode/ustring.h>

#include <algorithm>
#include <array>
#include <vector>

#include "core/error.h"
#include "text/byte_alphabet.h"
#include "text/char_class.h"
#include "text/replacement.h"
#include "text/utf8.h"

namespace drover {
namespace {

class SequenceNormalizer : public Normalizer {
  public:
    SequenceNormalizer(const JsonFields& fields) {
        const Json& members = fields.list("normalizers");
        for (std::size_t i = 0; i < members.size(); ++i)
            if (auto member = read_normalizer(members[i], fmt::format("{}[{}]", fields.where(), i)))
                members_.push_back(std::move(member));
    }
    void apply(std::string& text) const override {
        for (const auto& member : members_) member->apply(text);
    }
    void apply(AlignedText& text) const override {
        for (const auto& member : members_) member->apply(text);
    }

  private:
    std::vector<std::unique_ptr<Normalizer>> members_;
};

class PrependNormalizer : public Normalizer {
  public:
    explicit PrependNormalizer(std::string prefix) : prefix_(std::move(prefix)) {}
    void apply(std::string& text) const override {
        if (!text.empty()) text.insert(0, prefix_);
    }
    /// The prefix stands for the first character, as in Hugging Face's library.
    void apply(AlignedText& text) const override {
        if (text.text.empty()) return;
        AlignedRewriter rewriter(text);
        rewriter.put(prefix_, 0, decode_utf8(text.text).length);
        rewriter.finish();
    }

  private:
    std::string prefix_;
};

class ReplaceNormalizer : public Normalizer {
  public:
    explicit ReplaceNormalizer(const JsonFields& fields) : replacement_(fields) {}
    void apply(std::string& text) const override { replacement_.apply(text); }
    void apply(AlignedText& text) const override { replacement_.apply(text); }

  private:
    Replacement replacement_;
};

class StripNormalizer : public Normalizer {
  public:
    StripNormalizer(bool left, bool right) : left_(left), right_(right) {}
    void apply(std::string& text) const override {
        const Span kept = what_stays(text);
        text.resize(kept.end);
        text.erase(0, kept.begin);
    }
    void apply(AlignedText& text) const override {
        const Span kept = what_stays(text.text);
        AlignedRewriter rewriter(text);
        rewriter.drop_to(kept.begin);
        rewriter.keep_to(kept.end);
        rewriter.drop_to(text.text.size());
        rewriter.finish();
    }

  private:
    Span what_stays(std::string_view text) const {
        const std::uint8_t* classes = char_classes();
        std::size_t begin = text.size(), end = 0;  // of the part that is not space
        for (std::size_t i = 0; i < text.size();) {
            const Utf8Char c = decode_utf8(text.substr(i));
            if (!(classes[c.code_point] & char_class::space)) {
                begin = std::min(begin, i);
                end = i + c.length;
            }
            i += c.length;
        }
        if (!right_) end = text.size();
        if (!left_) begin = 0;
        return {std::min(begin, end), end};
    }

    bool left_, right_;
};

class UnicodeForm : public Normalizer {
  public:
    explicit UnicodeForm(const icu::Normalizer2* form) : form_(form) {}
    void apply(std::string& text) const override {
        UErrorCode status = U_ZERO_ERROR;
        std::string result;
        icu::StringByteSink<std::string> sink(&result);
        form_->normalizeUTF8(0, text, sink, nullptr, status);
        require(U_SUCCESS(status), "ICU failed to normalize");
        text = std::move(result);
    }
    /// Works from boundary to boundary. Of what changes, the last characters stand for one each, and the
    /// first for those that were composed to it.
    void apply(AlignedText& text) const override {
        UErrorCode status = U_ZERO_ERROR;
        if (form_->isNormalizedUTF8(text.text, status) && U_SUCCESS(status)) return;
        const std::string_view bytes = text.text;
        AlignedRewriter rewriter(text);
        std::string part;
        for (std::size_t begin = 0, end = 0; begin < bytes.size(); begin = end) {
            end = begin + decode_utf8(bytes.substr(begin)).length;
            while (end < bytes.size()) {
                const Utf8Char next = decode_utf8(bytes.substr(end));
                if (form_->hasBoundaryBefore(static_cast<UChar32>(next.code_point))) break;
                end += next.length;
            }
            part = bytes.substr(begin, end - begin);
            apply(part);
            if (part == bytes.substr(begin, end - begin)) {
                rewriter.keep_to(end);
            } else {
                rewrite(part, bytes, {begin, end}, rewriter);
            }
        }
        rewriter.finish();
    }

  private:
    static std::size_t count_characters(std::string_view text) {
        return static_cast<std::size_t>(std::count_if(
            text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
    }
    static void rewrite(std::string_view part, std::string_view bytes, Span old, AlignedRewriter& rewriter) {
        const std::size_t before = count_characters(bytes.substr(old.begin, old.end - old.begin)),
                          after = count_characters(part);
        if (after == 0 || after > before) {
            rewriter.put(part, old.begin, old.end);
            rewriter.drop_to(old.end);
            return;
        }
        std::size_t at = old.begin;
        for (std::size_t composed = before - after + 1; !part.empty(); composed = 1) {
            const std::size_t first = at;
            for (std::size_t i = 0; i < composed; ++i) at += decode_utf8(bytes.substr(at)).length;
            const std::size_t length = decode_utf8(part).length;
            rewriter.put(part.substr(0, length), first, at);
            part.remove_prefix(length);
        }
        rewriter.drop_to(old.end);
    }

    const icu::Normalizer2* form_;  // owned by ICU
};

/// Changes characters one by one.
class CharacterNormalizer : public Normalizer {
  public:
    void apply(std::string& text) const override {
        std::string result;
        result.reserve(text.size());
        for (std::string_view rest = text; !rest.empty();) {
            const Utf8Char c = decode_utf8(rest);
            append(rest.substr(0, c.length), c.code_point, result);
            rest.remove_prefix(c.length);
        }
        text = std::move(result);
    }
    void apply(AlignedText& text) const override {
        AlignedRewriter rewriter(text);
        std::string result;
        for (std::size_t i = 0; i < text.text.size();) {
            const std::string_view rest = std::string_view(text.text).substr(i);
            const Utf8Char c = decode_utf8(rest);
            result.clear();
            append(rest.substr(0, c.length), c.code_point, result);
            rewriter.put(result, i, i + c.length);
            i += c.length;
            rewriter.drop_to(i);
        }
        rewriter.finish();
    }

  private:
    /// Appends what becomes of one character.
    virtual void append(std::string_view character, char32_t code_point, std::string& result) const = 0;
};

/// Converts each character separately, unlike ICU for whole texts (final sigma).
class Lowercase : public CharacterNormalizer {
    void append(std::string_view, char32_t code_point, std::string& result) const override {
        if (code_point < 0x80) {
            result +=
                static_cast<char>(code_point >= 'A' && code_point <= 'Z' ? code_point + 32 : code_point);
            return;
        }
        icu::UnicodeString lower(static_cast<UChar32>(code_point));
        lower.toLower(icu::Locale::getRoot()).toUTF8String(result);
    }
};

class StripAccents : public CharacterNormalizer {
    void append(std::string_view character, char32_t code_point, std::string& result) const override {
        if (!(char_classes()[code_point] & char_class::mark)) result += character;
    }
};

class ByteAlphabet : public CharacterNormalizer {
    void append(std::string_view character, char32_t, std::string& result) const override {
        result += bytes_to_alphabet(character);
    }
};

using Instance = const icu::Normalizer2* (*)(UErrorCode&);

std::unique_ptr<Normalizer> unicode_form(Instance instance) {
    UErrorCode status = U_ZERO_ERROR;
    const icu::Normalizer2* form = instance(status);
    if (U_FAILURE(status))
        throw Error(fmt::format("ICU has no normalization data: {}.", u_errorName(status)),
                    "Install ICU's data files (libicu).");
    return std::make_unique<UnicodeForm>(form);
}

}  // namespace

std::unique_ptr<Normalizer> read_normalizer(const Json& description, const std::string& where) {
    if (description.is_null()) return nullptr;
    const JsonFields fields(description, where);
    const std::string type = fields.text("type");
    if (type == "Sequence") return std::make_unique<SequenceNormalizer>(fields);
    if (type == "Prepend") return std::make_unique<PrependNormalizer>(fields.text("prepend"));
    if (type == "Replace") return std::make_unique<ReplaceNormalizer>(fields);
    if (type == "Strip")
        return std::make_unique<StripNormalizer>(fields.flag("strip_left", true),
                                                 fields.flag("strip_right", true));
    if (type == "NFC") return unicode_form(icu::Normalizer2::getNFCInstance);
    if (type == "NFD") return unicode_form(icu::Normalizer2::getNFDInstance);
    if (type == "NFKC") return unicode_form(icu::Normalizer2::getNFKCInstance);
    if (type == "NFKD") return unicode_form(icu::Normalizer2::getNFKDInstance);
    if (type == "Lowercase") return std::make_unique<Lowercase>();
    if (type == "StripAccents") return std::make_unique<StripAccents>();
    if (type == "ByteLevel") return std::make_unique<ByteAlphabet>();
    unsupported_component(fields, type);
}

}  // namespace drover
