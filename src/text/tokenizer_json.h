#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "text/bpe_model.h"

namespace drover {

/// The contents of a tokenizer.json. The vocabulary and the merges are too long for a JSON tree and are
/// stored separately; `components` is the rest of the file.
struct TokenizerJson {
    Json components = Json::object();
    Vocabulary vocabulary;
    std::vector<BpeModel::Merge> merges;
};

/// Parses a tokenizer.json; `where` names it in errors.
TokenizerJson parse_tokenizer_json(std::string_view text, std::string_view where);

/// The file that parse_tokenizer_json would read back, for tokenizers that parts_of accepts.
std::string tokenizer_json_text(const TokenizerJson& tokenizer);

}  // namespace drover
