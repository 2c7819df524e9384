#pragma once

#include <memory>
#include <optional>
#include <string>

#include "data/packing/token_stream.h"
#include "data/rows/row_subsets.h"
#include "data/rows/training_rows.h"
#include "run/messages.h"
#include "run/model_source.h"
#include "train/loop/text_stream_data.h"

namespace drover {

struct RunSettings;

/// The rows to train on, or to evaluate.
struct TokenSplit {
    /// Of all datasets, one after the other; null for streams, and for a split that is not used.
    std::shared_ptr<const TrainingRows> rows;
    std::vector<std::int64_t> dataset_rows{};  ///< how many of them each dataset has; empty: one dataset
    std::vector<SharedRows> streamed{};        ///< of each dataset: rows that are read while they are used
    /// For each of these, how its examples become rows of tokens; empty: they are text.
    std::vector<OpenTokenRows> streamed_examples{};
    PackingOptions packing;  ///< how the rows are, or will be, packed
    std::string identity;    ///< equal for equal rows
};

/// The rows of a run.
struct TokenSource {
    TokenSplit train, validation;
    PackingOptions packing;               ///< of the split whose rows may differ most in length
    std::int64_t row_length = 0;          ///< of the longest row
    std::string train_hash{};             ///< of the text to train on, for RunFacts; empty: unknown
    std::optional<TokenId> pad_id{};      ///< absent: the settings and the tokenizer decide
    std::int64_t pad_to_multiple_of = 1;  ///< row lengths are padded to it
};

/// Tokenizes, or finds the result of an earlier run; a stream is only opened. Files of token ids are used as
/// they are, or packed if they hold one row per text; Error if they are not this model's. The first process
/// of each machine does the work; the others wait. Collective; Error unless all find the same rows.
TokenSource find_tokens_together(const Processes& processes, const RunSettings& settings,
                                 const ModelSource& model, const Messages& messages);

/// Error unless all ranks have the same rows. Collective.
void check_rows_alike(const Processes& processes, const TokenSource& tokens);

}  // namespace drover
