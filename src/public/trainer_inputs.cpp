#include "public/trainer_inputs.h"

#include <algorithm>

#include "public/parts.h"
#include "public/split_rows.h"

namespace drover::v1 {
namespace {

ModelSource model_of(const TrainerParts& parts) {
    const CausalLM::Parts& model = *parts.model.parts();
    ModelSource source{.config = model.current_config(),
                       .weights = model.folder,
                       .tokenizer = parts.data_collator.tokenizer().parts()->tokenizer};
    const std::int64_t tokens = parts.data_collator.tokenizer().size();
    if (tokens > source.config.vocab_size) source.config.resize_vocabulary(tokens);
    source.generation = find_generation_config(source.weights, source.config);
    if (source.weights.empty()) source.seed = model.seed;
    return source;
}

/// The rows of a split; raises `longest` to the length of its longest row.
TokenSplit rows_of(const Split& split, const char* name, const ModelSource& model, const Processes& processes,
                   std::int64_t& longest) {
    auto rows = std::make_shared<const SplitRows>(split, name, model.config.vocab_size, !processes.alone());
    longest = std::max(longest, rows->longest());
    std::string identity = rows->fingerprint();
    return {.rows = std::move(rows),
            .packing = {.packing = Packing::none, .block_size = 0},
            .identity = std::move(identity)};
}

}  // namespace

RunInputs inputs_of(const TrainerParts& parts, const Processes& processes) {
    RunInputs inputs{.model = model_of(parts)};
    TokenSource& tokens = inputs.tokens;
    tokens.packing = {.packing = Packing::none, .block_size = 0};
    tokens.pad_id = parts.data_collator.tokenizer().pad_token_id();
    tokens.pad_to_multiple_of = parts.data_collator.options().pad_to_multiple_of;
    tokens.train = rows_of(parts.train_dataset, "train_dataset", inputs.model, processes, tokens.row_length);
    tokens.train_hash = "content " + tokens.train.identity;
    if (parts.eval_dataset)
        tokens.validation =
            rows_of(*parts.eval_dataset, "eval_dataset", inputs.model, processes, tokens.row_length);
    return inputs;
}

}  // namespace drover::v1
