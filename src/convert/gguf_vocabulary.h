#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "io/gguf_header.h"

namespace drover {

/// A tokenizer as llama.cpp has it in a GGUF file.
struct GgufVocabulary {
    /// Of a token, by its number in the format.
    enum class Type : std::int32_t { normal = 1, unknown, control, user_defined, unused, byte };

    std::string model = "no_vocab";  ///< "llama" (SentencePiece), "gpt2" (bytes), or none
    std::string pre_tokenizer;       ///< llama.cpp's name for how text is split
    std::vector<std::string> tokens;
    std::vector<std::int32_t> types;
    std::vector<float> scores;        ///< of "llama"
    std::vector<std::string> merges;  ///< of "gpt2"
    std::optional<std::int64_t> bos, eos, unknown, padding;
    std::optional<bool> add_bos, add_eos, add_space_prefix;
    std::string chat_template;

    /// The tokenizer of a model folder, with exactly `rows` tokens: those of an embedding. Ids that no token
    /// has are marked as unused. A folder without a tokenizer gives an empty one. Error when llama.cpp has
    /// nothing that splits text in the same way.
    static GgufVocabulary of_folder(const std::filesystem::path& folder, std::int64_t rows);

    void write_to(GgufHeader& header) const;
};

}  // namespace drover
