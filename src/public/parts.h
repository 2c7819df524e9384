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
    std::filesystem::path folder;  ///< empty: new weights
    std::string config_name;       ///< what the config of new weights was made from, for training_args.json
    std::uint64_t seed = 0;        ///< of new weights
    ModelConfig config;
    std::string dtype;  ///< as in run_clm's --dtype
    /// Null until a Trainer trains the model; from then on, the weights of all copies of the model.
    mutable std::shared_ptr<TrainedWeights> trained{};

    const ModelConfig& current_config() const { return trained ? trained->config() : config; }
};

/// Rows of text in files, rows of ids, or both: the ids that map() made of the text.
struct __attribute__((visibility("hidden"))) Split::Parts {
    std::optional<DatasetSplit> files{};
    std::shared_ptr<const TokenDataset> own{};          ///< written by the program; null: there is none
    std::optional<std::vector<std::int64_t>> chosen{};  ///< which rows of `files` or `own`; absent: all
    bool has_ids = false;                               ///< of `ids` and `labels`
    std::vector<std::vector<TokenId>> ids{};
    std::vector<std::vector<TokenId>> labels{};  ///< empty: no row has labels of its own

    std::int64_t size() const;
    std::int64_t source_row(std::int64_t place) const {
        return chosen ? (*chosen)[static_cast<std::size_t>(place)] : place;
    }
    /// Error if the rows are text.
    void check_has_ids() const;
    TokenRow row(std::int64_t place) const;
    void take(std::vector<TokenRow> rows);
    void put(std::int64_t place, TokenRow row);
};

}  // namespace drover::v1
