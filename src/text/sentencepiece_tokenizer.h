#pragma once

#include "text/pipeline_tokenizer.h"
#include "text/sentencepiece_file.h"

namespace drover {

/// Where a space is added before a word.
enum class PrefixSpace {
    every_segment,  ///< before the text and after every added token, also before a space (SentencePiece
                    ///< itself)
    always,         ///< the same, but not where there already is a space
    first,          ///< before the text only, and not where there already is a space
    never
};

/// Whether the model is the plain BPE that tokenizer_of_sentencepiece translates: no normalization, and every
/// character of a piece is itself a piece.
bool is_plain_bpe(const SentencePieceFile& file);

/// Llama's BPE as the tokenizer.json that Hugging Face has for it. Pieces of equal score have equal ranks, as
/// in SentencePiece.
TokenizerJson tokenizer_of_sentencepiece(const SentencePieceFile& file, PrefixSpace prefix);

/// Any other model, through the SentencePiece library, which adds the space before each segment according to
/// the file.
TokenizerParts parts_of_sentencepiece(const SentencePieceFile& file, std::string_view bytes,
                                      std::string_view where);

/// The decoder of Llama's tokenizers.
Json llama_decoder(bool strips_prefix_space);
/// The pre-tokenizer that transformers 5 gives Llama's tokenizers.
Json llama_metaspace(PrefixSpace prefix);

}  // namespace drover
