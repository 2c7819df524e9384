#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "args/arguments.h"
#include "data/packing/token_cache.h"
#include "data/rows/row_subsets.h"
#include "data/rows/training_rows.h"
#include "model/config.h"
#include "run/messages.h"
#include "run/run_processes.h"
#include "text/tokenizer.h"

/// Where a run of `drover run_clm` gets its model, tokenizer and tokens from.
namespace drover {

struct ModelSource {
    ModelConfig config;
    std::filesystem::path weights{};  ///< folder; empty: the model starts from random weights
    Json generation;                  ///< what generation_config.json said, or what follows from the config
    std::shared_ptr<const Tokenizer> tokenizer;  ///< may be null where only token ids are read
};

/// A local path as it is, else the snapshot of a Hub repository in the cache; `flag` names the source in the
/// Error, which says where it looked.
std::filesystem::path find_model(const std::string& name, std::string_view flag, const Arguments& arguments);

ModelSource find_model_and_tokenizer(const Arguments& arguments);

/// What is trained on, or evaluated.
struct TokenSplit {
    std::shared_ptr<const TrainingRows> rows;  ///< null with --streaming, and for a split that is not used
    SharedRows streamed;                       ///< what is read while it is used; with --streaming alone
    PackingOptions packing;                    ///< as the rows are, or will be, packed
    std::string identity;                      ///< equal for equal rows
};

/// What there is to train on and to evaluate, as far as --do_train and --do_eval ask for it.
struct TokenSource {
    TokenSplit train, validation;
    PackingOptions packing;       ///< of the split whose rows may differ most in length
    std::int64_t row_length = 0;  ///< of the longest row
    std::string name;             ///< of the dataset, for the model card
    std::string train_hash{};     ///< of the text to train on, for RunFacts
};

/// Error unless all ranks have the same config and tokenizer. Collective.
void check_models_alike(const RunProcesses& processes, const ModelSource& model);

/// Tokenizes, or finds what was tokenized before; with --streaming only opens the text. Files of token ids
/// are taken as they are, or packed where they hold one row per text; Error when they are not this model's.
/// The first process of each machine does what is to be done; the others wait. Collective; Error unless all
/// find the same.
TokenSource find_tokens_together(const RunProcesses& processes, const Arguments& arguments,
                                 const ModelSource& model, const Messages& messages);

}  // namespace drover
