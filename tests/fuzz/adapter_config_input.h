#pragma once

#include <string>
#include <string_view>

#include "fuzz/accepts.h"
#include "model/config.h"
#include "peft/peft_config.h"
#include "peft/target_modules.h"

namespace drover::test {

/// A file that is accepted also names modules of a small model, and is written as it would be read again.
inline bool accepts_adapter_config(std::string_view text) {
    return accepts([&] {
        static const ModelConfig model = ModelConfig::parse(
            R"({"model_type": "mixtral", "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 2,
                "num_attention_heads": 2, "num_key_value_heads": 2, "num_local_experts": 2, "vocab_size": 8})",
            "model");
        const PeftConfig config = PeftConfig::parse(text, "input");
        const std::string saved = config.text();
        require(PeftConfig::parse(saved, "saved input").text() == saved,
                "a saved config reads back as another");
        const ResolvedAdapter resolved = resolve_adapter(config, model, "input");
        require(!resolved.adapters.weights.empty() || !resolved.fused.empty(), "an adapter of nothing");
    });
}

}  // namespace drover::test
