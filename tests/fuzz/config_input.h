#pragma once

#include <string>
#include <string_view>

#include "fuzz/accepts.h"
#include "model/config.h"

namespace drover::test {

inline bool accepts_config(std::string_view text) {
    return accepts([&] {
        const ModelConfig config = ModelConfig::parse(text, "input");
        const std::string saved = config.saved_text(DType::bf16);
        const ModelConfig again = ModelConfig::parse(saved, "saved input");
        require(again.saved_text(DType::bf16) == saved, "a saved config reads back as another");
    });
}

}  // namespace drover::test
