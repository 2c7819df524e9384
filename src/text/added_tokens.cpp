#include "text/added_tokens.h"

#include <fmt/format.h>

#include "core/error.h"
#include "text/char_class.h"
#include "text/utf8.h"

namespace drover {
namespace {

/// The start of the last character of `text`, which is not empty.
std::size_t last_character(std::string_view text) {
    std::size_t i = text.size() - 1;
    while (i > 0 && (static_cast<unsigned char>(text[i]) & 0xC0) == 0x80) --i;
    return i;
}

bool has_class(std::string_view text, unsigned bits) {
    return (char_classes()[decode_utf8(text).code_point] & bits) != 0;
}

}  // namespace

AddedToken read_added_token(const JsonFields& fields, bool special) {
    AddedToken token{.content = fields.text("content")};
    token.special = fields.flag("special", special);
    token.single_word = fields.flag("single_word", false);
    token.lstrip = fields.flag("lstrip", false);
    token.rstrip = fields.flag("rstrip", false);
    token.normalized = fields.flag("normalized", !token.special);
    return token;
}

void AddedTokens::add(const AddedToken& token, const Vocabulary& vocabulary) {
    if (token.content.empty()) return;
    auto id = find(token.content);
    if (!id) id = vocabulary.find(token.content);
    if (!id) {
        const auto model_size = static_cast<TokenId>(vocabulary.size());
        const TokenId largest = by_id_.empty() ? -1 : by_id_.rbegin()->first;
        id = std::max(largest + 1, model_size);
        if (*id > Vocabulary::largest_id)
            throw Error(fmt::format("The added token \"{}\" would get the id {}.", token.content, *id),
                        "Remove added tokens.");
    }
    ids_.insert_or_assign(token.content, *id);
    by_id_.insert_or_assign(*id, token);
    if (token.special) specials_.insert(token.content);
}

void AddedTokens::prepare(const Normalizer* normalizer) {
    raw_ = {};
    normalized_ = {};
    for (const auto& [id, token] : by_id_) {
        std::string content = token.content;
        if (token.normalized && normalizer) normalizer->apply(content);
        if (!content.empty()) (token.normalized ? normalized_ : raw_).add(content, id);
    }
}

std::optional<TokenId> AddedTokens::find(std::string_view content) const {
    const auto found = ids_.find(content);
    return found == ids_.end() ? std::nullopt : std::optional(found->second);
}

const AddedToken* AddedTokens::token(TokenId id) const {
    const auto found = by_id_.find(id);
    return found == by_id_.end() ? nullptr : &found->second;
}

std::optional<AddedTokens::Found> AddedTokens::next(std::string_view text, const TokenTrie& trie,
                                                    std::size_t& from, std::size_t done) const {
    while (const auto match = trie.find(text, from)) {
        from = match->end;
        const AddedToken& token = by_id_.at(match->id);
        const std::string_view before = text.substr(0, match->begin), after = text.substr(match->end);
        if (token.single_word &&
            ((!before.empty() && has_class(before.substr(last_character(before)), char_class::word)) ||
             (!after.empty() && has_class(after, char_class::word))))
            continue;
        std::size_t begin = match->begin, end = match->end;
        while (token.lstrip && begin > done) {
            const std::size_t last = last_character(text.substr(0, begin));
            if (!has_class(text.substr(last), char_class::space)) break;
            begin = last;
        }
        while (token.rstrip && end < text.size() && has_class(text.substr(end), char_class::space))
            end += decode_utf8(text.substr(end)).length;
        return Found{begin, end, match->id};
    }
    from = text.size();
    return std::nullopt;
}

}  // namespace drover
