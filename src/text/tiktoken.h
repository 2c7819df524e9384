#pragma once

#include <string_view>

#include "text/tokenizer_json.h"

namespace drover {

/// Whether a file looks like a tiktoken rank file: lines with a token in base64, a space and its rank.
bool is_tiktoken_file(std::string_view content);

/// The names of the 256 special tokens that follow the ranks.
enum class Llama3Names { v3, v3_1 };

/// Llama-3's tokenizer from its rank file, as the tokenizer.json that Hugging Face has for it.
TokenizerJson tokenizer_of_tiktoken(std::string_view content, Llama3Names names, std::string_view where);

}  // namespace drover
