#pragma once

#include <string>
#include <vector>

#include "core/json.h"
#include "text/tokenizer.h"

namespace drover {

/// The ids placed before and after those of a text.
struct Surroundings {
    std::vector<TokenId> before, after;
    /// Spaces at the ends of tokens do not count as part of them (trim_offsets), except for the one space
    /// that was added before the text.
    bool trims_spaces = false, adds_prefix_space = false;
};

/// What the "post_processor" of a tokenizer.json adds around a single text. Error names an unsupported type.
Surroundings read_post_processor(const Json& description, const std::string& where);

}  // namespace drover
