#include "text/bpe_model.h"

#include <fmt/format.h>

#include "core/error.h"
#include "text/byte_alphabet.h"
#include "text/merge_table.h"
#include "text/utf8.h"

namespace drover {
namespace {

constexpr TokenId none = -1;

/// Where the word that starts at `text[0]` ends: before the first marker that follows another character.
std::size_t end_of_word(std::string_view text) {
    std::size_t i = 0;
    while (text.substr(i).starts_with(space_marker)) i += space_marker.size();
    const std::size_t next = text.find(space_marker, i);
    return next == text.npos ? text.size() : next;
}

}  // namespace

BpeModel::BpeModel(Vocabulary vocabulary, const std::vector<Merge>& merges, const Options& options,
                   std::string_view where)
    : vocabulary_(std::move(vocabulary)), options_(options), merges_(merges.size()) {
    const auto id_of = [&](std::string_view token, const Merge& merge) {
        const auto id = vocabulary_.find(token);
        if (!id)
            throw Error(fmt::format("{} merges \"{}\" and \"{}\", but \"{}\" is not in its vocabulary.",
                                    where, merge.left, merge.right, token),
                        "Fetch the file again.");
        return *id;
    };
    for (const Merge& merge : merges)
        merges_.put(id_of(merge.left, merge), id_of(merge.right, merge),
                    {merge.rank, id_of(merge.left + merge.right, merge)});
    for (int byte = 0; byte < 256; ++byte)
        fallback_tokens_[static_cast<std::size_t>(byte)] =
            vocabulary_.find(fmt::format("<0x{:02X}>", byte)).value_or(none);
    if (options_.byte_level)
        prepare_bytes();
    else
        find_word_boundaries(merges);
}

void BpeModel::prepare_bytes() {
    for (int byte = 0; byte < 256; ++byte) {
        const char plain = static_cast<char>(byte);
        byte_symbols_[static_cast<std::size_t>(byte)] =
            vocabulary_.find(bytes_to_alphabet({&plain, 1})).value_or(none);
    }
    if (!options_.ignore_merges) return;
    whole_pieces_.reserve(vocabulary_.size());
    vocabulary_.for_each([&](std::string_view token, TokenId id) {
        if (const auto bytes = alphabet_to_bytes(token)) whole_pieces_.add(*bytes, id);
    });
}

void BpeModel::find_word_boundaries(const std::vector<Merge>& merges) {
    if (options_.ignore_merges || !vocabulary_.find(space_marker)) return;
    words_begin_at_marker_ = true;
    for (const Merge& merge : merges) {
        const std::string merged = merge.left + merge.right;
        if (end_of_word(merged) != merged.size()) words_begin_at_marker_ = false;
    }
}

void BpeModel::encode(std::string_view piece, EncodeScratch& scratch, std::vector<TokenId>& ids) const {
    // If no merge can cross the start of a word, words are encoded separately: the ids are the same, and
    // words repeat more often than whole rows.
    while (words_begin_at_marker_ && !piece.empty()) {
        const std::size_t end = end_of_word(piece);
        encode_word(piece.substr(0, end), scratch, ids);
        piece.remove_prefix(end);
    }
    if (!piece.empty()) encode_word(piece, scratch, ids);
}

std::size_t BpeModel::token_length(TokenId id, std::string_view text) const {
    const std::string_view token = vocabulary_.token(id).value_or(std::string_view());
    if (options_.byte_level) {
        const std::optional<std::string> bytes = alphabet_to_bytes(token);
        return bytes && text.starts_with(*bytes) ? bytes->size() : 0;
    }
    if (!token.empty() && text.starts_with(token)) return token.size();
    return !text.empty() && fallback_tokens_[static_cast<unsigned char>(text.front())] == id ? 1 : 0;
}

void BpeModel::encode(std::string_view piece, EncodeScratch& scratch, std::vector<TokenId>& ids,
                      std::vector<Span>& spans) const {
    const std::size_t first = ids.size();
    encode(piece, scratch, ids);
    // Tokens are the bytes of the piece, one after the other. Only characters that the vocabulary does not
    // have are in no token, or in the unknown one.
    std::size_t at = 0;
    for (std::size_t i = first; i < ids.size(); ++i) {
        std::size_t length = 0;
        const std::size_t begin = at;
        const auto is_next = [&](std::size_t id) {
            length = id < ids.size() ? token_length(ids[id], piece.substr(at)) : 0;
            return length > 0;
        };
        const auto pass_character = [&] {
            at += options_.byte_level ? 1 : std::max<std::size_t>(decode_utf8(piece.substr(at)).length, 1);
        };
        if (options_.unknown && ids[i] == *options_.unknown && !is_next(i)) {
            if (at < piece.size()) pass_character();
            while (options_.fuse_unknown && at < piece.size() && !is_next(i + 1)) pass_character();
            spans.push_back({begin, at});
            continue;
        }
        while (at < piece.size() && !is_next(i)) pass_character();
        spans.push_back({at, at + length});
        at += length;
    }
}

void BpeModel::encode_word(std::string_view word, EncodeScratch& scratch, std::vector<TokenId>& ids) const {
    if (word.size() > WordCache::longest_word) return encode_new_word(word, scratch, ids);
    const std::uint64_t hash = token_hash(word);
    const auto known = scratch.words.find(word, hash);
    if (!known.empty()) {
        ids.insert(ids.end(), known.begin(), known.end());
        return;
    }
    const std::size_t before = ids.size();
    encode_new_word(word, scratch, ids);
    scratch.words.put(word, hash, std::span(ids).subspan(before));
}

void BpeModel::encode_new_word(std::string_view word, EncodeScratch& scratch,
                               std::vector<TokenId>& ids) const {
    if (options_.ignore_merges)
        if (const auto id = (options_.byte_level ? whole_pieces_ : vocabulary_).find(word)) {
            ids.push_back(*id);
            return;
        }
    scratch.symbols.clear();
    if (options_.byte_level)
        split_bytes(word, scratch);
    else
        split_characters(word, scratch);
    merge_symbols(merges_, scratch);
    ids.insert(ids.end(), scratch.symbols.begin(), scratch.symbols.end());
}

void BpeModel::split_bytes(std::string_view word, EncodeScratch& scratch) const {
    bool after_unknown = false;
    for (const char c : word) {
        const TokenId symbol = byte_symbols_[static_cast<unsigned char>(c)];
        if (symbol != none) {
            scratch.symbols.push_back(symbol);
        } else if (options_.unknown && !(after_unknown && options_.fuse_unknown)) {
            scratch.symbols.push_back(*options_.unknown);
        }
        after_unknown = symbol == none;
    }
}

void BpeModel::split_characters(std::string_view word, EncodeScratch& scratch) const {
    // As in Hugging Face's library, an unknown token is written when the next known character comes, so bytes
    // between the two precede it.
    bool pending_unknown = false;
    while (!word.empty()) {
        const std::string_view character = word.substr(0, decode_utf8(word).length);
        word.remove_prefix(character.size());
        if (const auto id = vocabulary_.find(character)) {
            if (pending_unknown) scratch.symbols.push_back(*options_.unknown);
            pending_unknown = false;
            scratch.symbols.push_back(*id);
            continue;
        }
        bool has_bytes = options_.byte_fallback;
        for (const char c : character)
            has_bytes = has_bytes && fallback_tokens_[static_cast<unsigned char>(c)] != none;
        if (has_bytes) {
            for (const char c : character)
                scratch.symbols.push_back(fallback_tokens_[static_cast<unsigned char>(c)]);
        } else if (options_.unknown) {
            if (pending_unknown && !options_.fuse_unknown) scratch.symbols.push_back(*options_.unknown);
            pending_unknown = true;
        }
    }
    if (pending_unknown) scratch.symbols.push_back(*options_.unknown);
}

}  // namespace drover
