#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "text/merge_table.h"
#include "text/token_model.h"

namespace drover {

/// Byte-pair encoding: a piece starts as one symbol per character (or byte); then the adjacent pair of lowest
/// rank is merged, leftmost first, until no pair merges.
class BpeModel : public TokenModel {
  public:
    struct Merge {
        std::string left, right;
        std::uint32_t rank;
    };
    struct Options {
        std::optional<TokenId>
            unknown;                 ///< for characters not in the vocabulary; without it they are dropped
        bool fuse_unknown = false;   ///< one unknown token for adjacent unknown characters
        bool byte_fallback = false;  ///< such characters become tokens like <0x0A>, one for each byte
        bool ignore_merges = false;  ///< a piece that is a token becomes that token, whatever the merges
        bool byte_level = false;     ///< tokens are written in byte_alphabet.h, pieces are plain bytes
    };

    /// Both tokens of a merge and their concatenation must be in the vocabulary; otherwise an Error that
    /// names `where`.
    BpeModel(Vocabulary vocabulary, const std::vector<Merge>& merges, const Options& options,
             std::string_view where);

    void encode(std::string_view piece, EncodeScratch& scratch, std::vector<TokenId>& ids) const override;
    void encode(std::string_view piece, EncodeScratch& scratch, std::vector<TokenId>& ids,
                std::vector<Span>& spans) const override;
    const Vocabulary& vocabulary() const override { return vocabulary_; }

  private:
    void find_word_boundaries(const std::vector<Merge>& merges);
    void prepare_bytes();
    void encode_word(std::string_view word, EncodeScratch& scratch, std::vector<TokenId>& ids) const;
    void encode_new_word(std::string_view word, EncodeScratch& scratch, std::vector<TokenId>& ids) const;
    /// Whether a token begins at `text[0]`: its length there, or 0.
    std::size_t token_length(TokenId id, std::string_view text) const;
    /// The initial symbols of a word, in scratch.symbols.
    void split_bytes(std::string_view word, EncodeScratch& scratch) const;
    void split_characters(std::string_view word, EncodeScratch& scratch) const;

    Vocabulary vocabulary_;
    Vocabulary whole_pieces_;  // with ignore_merges and byte_level: tokens as plain bytes
    Options options_;
    MergeTable merges_;
    std::array<TokenId, 256> byte_symbols_{};     // byte_level: the token of each byte, or none
    std::array<TokenId, 256> fallback_tokens_{};  // <0x00> … <0xFF>, or none
    bool words_begin_at_marker_ = false;          // no token holds "▁" after another character
};

}  // namespace drover
