#include "text/sentencepiece_tokenizer.h"

#include <fmt/format.h>
#include <sentencepiece_processor.h>

#include <algorithm>
#include <map>

#include "core/error.h"
#include "text/utf8.h"

namespace drover {
namespace {

using Type = SentencePieceFile::Type;

/// Whether a piece is part of text, as opposed to one with a special meaning.
bool takes_part_in_merges(const SentencePieceFile::Piece& piece) {
    return piece.type == Type::normal || piece.type == Type::user_defined;
}

class SentencePieceModel : public TokenModel {
  public:
    SentencePieceModel(Vocabulary vocabulary, std::string_view bytes, std::string_view where)
        : vocabulary_(std::move(vocabulary)) {
        const auto status = processor_.LoadFromSerializedProto({bytes.data(), bytes.size()});
        if (!status.ok())
            throw Error(
                fmt::format("The SentencePiece library does not accept {}: {}.", where, status.ToString()),
                "Fetch the file again.");
    }
    void encode(std::string_view piece, EncodeScratch&, std::vector<TokenId>& ids) const override {
        std::vector<int> found;
        const auto status = processor_.Encode({piece.data(), piece.size()}, &found);
        if (!status.ok())
            throw Error(fmt::format("SentencePiece could not encode a text: {}.", status.ToString()),
                        "Look for odd characters in the data.");
        ids.insert(ids.end(), found.begin(), found.end());
    }
    void encode(std::string_view piece, EncodeScratch& scratch, std::vector<TokenId>& ids,
                std::vector<Span>& spans) const override {
        const std::size_t first = ids.size();
        encode(piece, scratch, ids);
        const auto found = processor_.EncodeAsImmutableProto({piece.data(), piece.size()});
        require(found.pieces_size() == ids.size() - first, "SentencePiece encodes a text in one way");
        for (const auto& part : found.pieces()) spans.push_back({part.begin(), part.end()});
    }
    const Vocabulary& vocabulary() const override { return vocabulary_; }

  private:
    Vocabulary vocabulary_;
    sentencepiece::SentencePieceProcessor processor_;
};

Vocabulary vocabulary_of(const SentencePieceFile& file) {
    Vocabulary vocabulary;
    vocabulary.reserve(file.pieces.size());
    for (std::size_t i = 0; i < file.pieces.size(); ++i)
        vocabulary.add(file.pieces[i].text, static_cast<TokenId>(i));
    return vocabulary;
}

Json added_token(const SentencePieceFile& file, std::size_t id) {
    return {{"id", id},
            {"content", file.pieces[id].text},
            {"single_word", false},
            {"lstrip", false},
            {"rstrip", false},
            {"normalized", false},
            {"special", file.pieces[id].type != Type::user_defined}};
}

/// Control and unknown pieces are special; user-defined pieces are also cut out.
Json added_tokens(const SentencePieceFile& file) {
    Json added = Json::array();
    for (std::size_t i = 0; i < file.pieces.size(); ++i)
        if (const Type type = file.pieces[i].type;
            type == Type::control || type == Type::unknown || type == Type::user_defined)
            added.push_back(added_token(file, i));
    return added;
}

/// Every way to make a piece from two others, best pieces first.
std::vector<BpeModel::Merge> merges_of(const SentencePieceFile& file, const Vocabulary& vocabulary) {
    std::map<float, std::uint32_t, std::greater<>> ranks;
    for (const auto& piece : file.pieces)
        if (takes_part_in_merges(piece)) ranks[piece.score] = 0;
    std::uint32_t count = 0;
    for (auto& [score, rank] : ranks) rank = count++;

    std::vector<BpeModel::Merge> merges;
    const auto is_part = [&](std::string_view text) {
        const auto id = vocabulary.find(text);
        return id && takes_part_in_merges(file.pieces[static_cast<std::size_t>(*id)]);
    };
    for (const auto& piece : file.pieces) {
        if (!takes_part_in_merges(piece)) continue;
        const std::string_view text = piece.text;
        for (std::size_t i = decode_utf8(text).length; i < text.size();
             i += decode_utf8(text.substr(i)).length)
            if (is_part(text.substr(0, i)) && is_part(text.substr(i)))
                merges.push_back(
                    {std::string(text.substr(0, i)), std::string(text.substr(i)), ranks[piece.score]});
    }
    // A tokenizer.json has no equal ranks. Putting the longer left part first among equals has the same
    // effect on runs of spaces, which are the pieces that share a score.
    std::stable_sort(merges.begin(), merges.end(), [](const BpeModel::Merge& a, const BpeModel::Merge& b) {
        return a.rank != b.rank ? a.rank < b.rank : a.left.size() > b.left.size();
    });
    return merges;
}

}  // namespace

Json llama_decoder(bool strips_prefix_space) {
    Json steps =
        Json::array({{{"type", "Replace"}, {"pattern", {{"String", space_marker}}}, {"content", " "}},
                     {{"type", "ByteFallback"}},
                     {{"type", "Fuse"}}});
    if (strips_prefix_space)
        steps.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
    return {{"type", "Sequence"}, {"decoders", steps}};
}

Json llama_metaspace(PrefixSpace prefix) {
    const char* scheme = prefix == PrefixSpace::first   ? "first"
                         : prefix == PrefixSpace::never ? "never"
                                                        : "always";
    return {
        {"type", "Metaspace"}, {"replacement", space_marker}, {"prepend_scheme", scheme}, {"split", false}};
}

bool is_plain_bpe(const SentencePieceFile& file) {
    if (file.algorithm != SentencePieceFile::Algorithm::bpe || file.has_charsmap || !file.add_dummy_prefix ||
        file.remove_extra_whitespaces || !file.escape_whitespaces || file.treat_whitespace_as_suffix)
        return false;
    const Vocabulary vocabulary = vocabulary_of(file);
    if (vocabulary.size() != file.pieces.size()) return false;
    for (const auto& piece : file.pieces) {
        if (piece.type == Type::unused) return false;
        if (!takes_part_in_merges(piece)) continue;
        for (std::string_view rest = piece.text; !rest.empty();) {
            const std::size_t length = decode_utf8(rest).length;
            if (!vocabulary.find(rest.substr(0, length))) return false;
            rest.remove_prefix(length);
        }
    }
    return true;
}

TokenizerJson tokenizer_of_sentencepiece(const SentencePieceFile& file, PrefixSpace prefix) {
    TokenizerJson result;
    result.vocabulary = vocabulary_of(file);
    result.merges = merges_of(file, result.vocabulary);
    const bool own = prefix == PrefixSpace::every_segment;
    const Json normalizer{
        {"type", "Sequence"},
        {"normalizers",
         Json::array({{{"type", "Prepend"}, {"prepend", space_marker}},
                      {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", space_marker}}})}};
    result.components = {
        {"version", "1.0"},
        {"truncation", nullptr},
        {"padding", nullptr},
        {"added_tokens", added_tokens(file)},
        {"normalizer", own ? normalizer : Json()},
        {"pre_tokenizer", own ? Json() : llama_metaspace(prefix)},
        {"post_processor", nullptr},
        {"decoder", llama_decoder(prefix != PrefixSpace::never)},
        {"model",
         {{"type", "BPE"},
          {"dropout", nullptr},
          {"unk_token", file.unk < 0 ? Json() : Json(file.pieces[static_cast<std::size_t>(file.unk)].text)},
          {"continuing_subword_prefix", nullptr},
          {"end_of_word_suffix", nullptr},
          {"fuse_unk", true},
          {"byte_fallback", file.byte_fallback},
          {"ignore_merges", false}}}};
    return result;
}

TokenizerParts parts_of_sentencepiece(const SentencePieceFile& file, std::string_view bytes,
                                      std::string_view where) {
    TokenizerParts parts;
    parts.model = std::make_unique<SentencePieceModel>(vocabulary_of(file), bytes, where);
    parts.decoder = read_decoder(llama_decoder(file.add_dummy_prefix), std::string(where));
    for (const Json& token : added_tokens(file))
        parts.added.add(read_added_token(JsonFields(token, std::string(where)), false),
                        parts.model->vocabulary());
    return parts;
}

}  // namespace drover
