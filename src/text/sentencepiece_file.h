#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace drover {

/// The parts of a SentencePiece tokenizer.model (a protobuf message) that are used.
struct SentencePieceFile {
    enum class Type { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };
    enum class Algorithm { unigram = 1, bpe = 2, word = 3, character = 4 };
    struct Piece {
        std::string text;
        float score = 0;
        Type type = Type::normal;
    };

    std::vector<Piece> pieces;
    Algorithm algorithm = Algorithm::unigram;
    bool byte_fallback = false;
    bool treat_whitespace_as_suffix = false;
    TokenId unk = 0, bos = 1, eos = 2, pad = -1;  ///< −1: none
    bool has_charsmap = false;
    bool add_dummy_prefix = true;
    bool remove_extra_whitespaces = true;
    bool escape_whitespaces = true;

    /// Error, naming `where`, if the bytes are not such a file.
    static SentencePieceFile parse(std::string_view bytes, std::string_view where);
};

}  // namespace drover
