#pragma once

#include <string>
#include <vector>

#include "core/json.h"
#include "text/tokenizer.h"

namespace drover {

/// The ids placed before and after those of a text.
struct Surroundings {
    std::vector<TokenId> before, after;
};

/// What the "post_processor" of a tokenizer.json adds around a single text. Error names an unsupported type.
Surroundings read_post_processor(const Json& description, const std::string& where);

}  // namespace drover
