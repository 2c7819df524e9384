#include "public/trainer_inputs.h"

#include <algorithm>

#include "public/mapped_rows.h"
#include "public/parts.h"

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
    return source;
}

/// The rows of a split; raises `longest` to the length of its longest row.
TokenSplit rows_of(const Split& split, const ModelSource& model, std::int64_t& longest) {
    const auto mapped = std::make_shared<const MappedRows>(split, *model.tokenizer, model.config.vocab_size);
    longest = std::max(longest, mapped->longest());
    return {.rows = std::shared_ptr<const TrainingRows>(mapped, &mapped->rows()),
            .packing = {.packing = Packing::none, .block_size = 0},
            .identity = mapped->fingerprint()};
}

}  // namespace

RunInputs inputs_of(const TrainerParts& parts) {
    RunInputs inputs{.model = model_of(parts)};
    TokenSource& tokens = inputs.tokens;
    tokens.packing = {.packing = Packing::none, .block_size = 0};
    tokens.pad_id = parts.data_collator.tokenizer().pad_token_id();
    tokens.pad_to_multiple_of = parts.data_collator.options().pad_to_multiple_of;
    tokens.train = rows_of(parts.train_dataset, inputs.model, tokens.row_length);
    if (parts.eval_dataset) tokens.validation = rows_of(*parts.eval_dataset, inputs.model, tokens.row_length);
    return inputs;
}

}  // namespace drover::v1
