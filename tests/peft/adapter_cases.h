#pragma once

#include <filesystem>
#include <string>

#include "core/json.h"
#include "core/json_text.h"
#include "model/config.h"
#include "support/golden.h"

/// The adapters of tests/golden/peft.
namespace drover::test {

inline constexpr const char* adapter_cases[] = {
    "llama_default",  "llama_rslora", "llama_dora",   "llama_saved",   "llama_head",   "llama_embedding",
    "tied_embedding", "tied_saved",   "qwen2_layers", "mixtral_fused", "mixtral_down", "mixtral_published",
};

struct AdapterCase {
    explicit AdapterCase(const std::string& name)
        : folder(golden_path("peft/" + name)),
          expected(read_json_file(folder / "expected.json")),
          base(golden_path("generate/" + expected.at("base").get<std::string>())),
          model(ModelConfig::from_path(base)) {}

    std::filesystem::path folder;
    Json expected;
    std::filesystem::path base;
    ModelConfig model;
};

}  // namespace drover::test
