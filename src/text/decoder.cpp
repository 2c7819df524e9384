#include "text/decoder.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>

#include "text/byte_alphabet.h"
#include "text/replacement.h"
#include "text/utf8.h"

namespace drover {
namespace {

/// The number of bytes of a truncated or invalid character that one U+FFFD replaces.
std::size_t bad_length(std::string_view bytes) {
    const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(bytes[i]); };
    const unsigned char lead = byte(0);
    const std::size_t wanted = lead >= 0xF0 && lead < 0xF5   ? 4
                               : lead >= 0xE0 && lead < 0xF0 ? 3
                               : lead >= 0xC2 && lead < 0xE0 ? 2
                                                             : 1;
    std::size_t length = 1;
    while (length < wanted && length < bytes.size()) {
        unsigned char low = 0x80, high = 0xBF;
        if (length == 1) {  // no overlong forms, no surrogates, nothing past U+10FFFF
            if (lead == 0xE0) low = 0xA0;
            if (lead == 0xED) high = 0x9F;
            if (lead == 0xF0) low = 0x90;
            if (lead == 0xF4) high = 0x8F;
        }
        if (byte(length) < low || byte(length) > high) break;
        ++length;
    }
    return length;
}

class SequenceDecoder : public Decoder {
  public:
    explicit SequenceDecoder(const JsonFields& fields) {
        const Json& members = fields.list("decoders");
        for (std::size_t i = 0; i < members.size(); ++i)
            if (auto member = read_decoder(members[i], fmt::format("{}[{}]", fields.where(), i)))
                members_.push_back(std::move(member));
    }
    void apply(std::vector<std::string>& tokens) const override {
        for (const auto& member : members_) member->apply(tokens);
    }

  private:
    std::vector<std::unique_ptr<Decoder>> members_;
};

class ByteLevelDecoder : public Decoder {
  public:
    void apply(std::vector<std::string>& tokens) const override {
        std::string bytes;
        for (const std::string& token : tokens) bytes += alphabet_to_bytes(token).value_or(token);
        tokens.assign(1, replace_bad_utf8(bytes));
    }
};

class ReplaceDecoder : public Decoder {
  public:
    explicit ReplaceDecoder(const JsonFields& fields) : replacement_(fields) {}
    void apply(std::vector<std::string>& tokens) const override {
        for (std::string& token : tokens) replacement_.apply(token);
    }

  private:
    Replacement replacement_;
};

/// Tokens like <0x0A> become bytes. Adjacent ones that together are not valid UTF-8 become one U+FFFD each.
class ByteFallbackDecoder : public Decoder {
  public:
    void apply(std::vector<std::string>& tokens) const override {
        std::vector<std::string> result;
        std::string bytes;
        const auto flush = [&] {
            if (valid_utf8_prefix(bytes) == bytes.size()) {
                if (!bytes.empty()) result.push_back(bytes);
            } else {
                result.insert(result.end(), bytes.size(), std::string(replacement_character));
            }
            bytes.clear();
        };
        for (std::string& token : tokens) {
            if (const auto byte = byte_of(token)) {
                bytes += static_cast<char>(*byte);
            } else {
                flush();
                result.push_back(std::move(token));
            }
        }
        flush();
        tokens = std::move(result);
    }

  private:
    static std::optional<unsigned char> byte_of(std::string_view token) {
        if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
        unsigned char byte = 0;
        const auto [end, error] = std::from_chars(token.data() + 3, token.data() + 5, byte, 16);
        return error == std::errc() && end == token.data() + 5 ? std::optional(byte) : std::nullopt;
    }
};

class FuseDecoder : public Decoder {
  public:
    void apply(std::vector<std::string>& tokens) const override {
        std::string whole;
        for (const std::string& token : tokens) whole += token;
        tokens.assign(1, std::move(whole));
    }
};

class StripDecoder : public Decoder {
  public:
    explicit StripDecoder(const JsonFields& fields)
        : content_(fields.text("content")),
          start_(fields.integer("start", 0)),
          stop_(fields.integer("stop", 0)) {
        if (content_.empty()) fields.wrong("content", "a character");
    }
    void apply(std::vector<std::string>& tokens) const override {
        for (std::string& token : tokens) {
            std::string_view rest = token;
            for (std::int64_t i = 0; i < start_ && rest.starts_with(content_); ++i)
                rest.remove_prefix(content_.size());
            for (std::int64_t i = 0; i < stop_ && rest.ends_with(content_); ++i)
                rest.remove_suffix(content_.size());
            token = std::string(rest);
        }
    }

  private:
    std::string content_;
    std::int64_t start_, stop_;
};

class MetaspaceDecoder : public Decoder {
  public:
    explicit MetaspaceDecoder(const JsonFields& fields) : replacement_(fields.text("replacement")) {
        if (replacement_.empty()) fields.wrong("replacement", "a character");
        const std::string scheme = fields.optional_text("prepend_scheme")
                                       .value_or(fields.flag("add_prefix_space", true) ? "always" : "never");
        prepends_ = scheme != "never";
    }
    void apply(std::vector<std::string>& tokens) const override {
        bool first = true;
        for (std::string& token : tokens) {
            const std::string_view with = first && prepends_ ? "" : " ";
            std::string result;
            for (std::string_view rest = token; !rest.empty();) {
                const bool replaced = rest.starts_with(replacement_);
                const std::size_t length = replaced ? replacement_.size() : decode_utf8(rest).length;
                result += replaced ? with : rest.substr(0, length);
                rest.remove_prefix(length);
            }
            token = std::move(result);
            first = false;
        }
    }

  private:
    std::string replacement_;
    bool prepends_;
};

}  // namespace

std::string replace_bad_utf8(std::string_view bytes) {
    std::string result;
    result.reserve(bytes.size());
    for (;;) {
        const std::size_t good = valid_utf8_prefix(bytes);
        result += bytes.substr(0, good);
        bytes.remove_prefix(good);
        if (bytes.empty()) return result;
        result += replacement_character;
        bytes.remove_prefix(bad_length(bytes));
    }
}

std::unique_ptr<Decoder> read_decoder(const Json& description, const std::string& where) {
    if (description.is_null()) return nullptr;
    const JsonFields fields(description, where);
    const std::string type = fields.text("type");
    if (type == "Sequence") return std::make_unique<SequenceDecoder>(fields);
    if (type == "ByteLevel") return std::make_unique<ByteLevelDecoder>();
    if (type == "Replace") return std::make_unique<ReplaceDecoder>(fields);
    if (type == "ByteFallback") return std::make_unique<ByteFallbackDecoder>();
    if (type == "Fuse") return std::make_unique<FuseDecoder>();
    if (type == "Strip") return std::make_unique<StripDecoder>(fields);
    if (type == "Metaspace") return std::make_unique<MetaspaceDecoder>(fields);
    unsupported_component(fields, type);
}

}  // namespace drover
