#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/json.h"

namespace drover {

/// Turns tokens back into text, step by step; the results of the last step are joined.
class Decoder {
  public:
    virtual ~Decoder() = default;
    virtual void apply(std::vector<std::string>& tokens) const = 0;
};

/// The "decoder" of a tokenizer.json; null if `description` is null. Error names an unsupported type.
std::unique_ptr<Decoder> read_decoder(const Json& description, const std::string& where);

/// Replaces invalid UTF-8 by U+FFFD: one for every longest prefix of a truncated character, as Unicode
/// recommends.
std::string replace_bad_utf8(std::string_view bytes);

}  // namespace drover
