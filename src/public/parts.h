#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/datasets/resolve_dataset.h"
#include "drover/data.h"
#include "drover/model.h"
#include "model/config.h"
#include "public/trained_weights.h"
#include "text/tokenizer.h"

/// The contents of the public classes. Inside v1 a plain name is the public class; drover::Tokenizer is the
/// program's own.
namespace drover::v1 {

struct Tokenizer::Parts {
    std::shared_ptr<const drover::Tokenizer> tokenizer;
    std::optional<TokenId> pad;
};

struct CausalLM::Parts {
    std::filesystem::path folder;
    ModelConfig config;
    std::string dtype;  ///< as in run_clm's --dtype
    /// Null until a Trainer trains the model; from then on, the weights of all copies of the model.
    mutable std::shared_ptr<TrainedWeights> trained{};

    const ModelConfig& current_config() const { return trained ? trained->config() : config; }
};

struct Split::Parts {
    DatasetSplit files;
    bool is_mapped = false;
    std::vector<std::vector<TokenId>> ids;
};

}  // namespace drover::v1
