#include "app/run_clm_data.h"

#include <fmt/format.h>

#include "core/error.h"
#include "train/loop/text_stream_data.h"

namespace drover {
namespace {

/// Blocks are never padded, and every token of theirs is a label.
TokenId pad_id(const Arguments& arguments, Packing packing, const Tokenizer& tokenizer) {
    if (packing == Packing::hf) return 0;
    const std::string name = arguments.optional_text("pad_token").value_or("");
    if (name == "unk") {
        if (const auto unk = tokenizer.unk()) return *unk;
        throw Error("--pad_token is \"unk\", but the tokenizer has no such token.", "Use --pad_token eos.");
    }
    if (!name.empty() && name != "eos") {
        std::vector<TokenId> ids;
        tokenizer.encode(name, SpecialTokens::omit, ids);
        if (ids.size() == 1) return ids[0];
        throw Error(fmt::format("--pad_token is \"{}\", which is not one token of this tokenizer.", name),
                    "Use eos, unk, or the text of a token.");
    }
    return choose_pad_id(tokenizer, name == "eos");
}

std::unique_ptr<TrainingData> make_data(const TokenSplit& split, const Arguments& arguments,
                                        const ModelSource& model, SamplerOptions sampler,
                                        const BatchLayout& layout, const char* max_samples_flag,
                                        StreamEnd end) {
    const auto max_samples = arguments.optional_integer(max_samples_flag);
    const CollatorOptions collator{.pad_id = pad_id(arguments, split.packing.packing, *model.tokenizer),
                                   .ignore_every_pad_id = split.packing.packing == Packing::none,
                                   .pad_to_multiple_of = layout.row_multiple};
    if (!split.streamed)
        return std::make_unique<TokenFileData>(*split.rows,
                                               LoaderOptions{.sampler = std::move(sampler),
                                                             .collator = collator,
                                                             .part = layout.part,
                                                             .max_samples = max_samples},
                                               end);
    PackingOptions packing = split.packing;
    packing.max_rows = max_samples;
    return std::make_unique<TextStreamData>(TextStreamOptions{
        .rows = split.streamed,
        .tokenizer = model.tokenizer,
        .packing = packing,
        .dealing = {.batch_size = sampler.batch_size, .ranks = sampler.ranks, .rank = sampler.rank},
        .collator = collator,
        .vocab_size = model.config.vocab_size,
        .end = end,
        .part = layout.part});
}

}  // namespace

std::unique_ptr<TrainingData> training_data(const Arguments& arguments, const TrainerSettings& settings,
                                            const ModelSource& model, const TokenSource& tokens,
                                            const BatchLayout& layout) {
    SamplerOptions sampler = training_sampler(settings);
    const std::string& order = arguments.text("train_sampling_strategy");
    if (order == "group_by_length") {
        sampler.order = SampleOrder::by_length;
        sampler.length_group = settings.per_device_train_batch_size * settings.gradient_accumulation_steps;
    } else if (order == "sequential") {
        sampler.order = SampleOrder::sequential;
    }
    return make_data(tokens.train, arguments, model, std::move(sampler), layout, "max_train_samples",
                     StreamEnd::never);
}

std::unique_ptr<TrainingData> evaluation_data(const Arguments& arguments, const TrainerSettings& settings,
                                              const ModelSource& model, const TokenSource& tokens,
                                              const BatchLayout& layout) {
    return make_data(tokens.validation, arguments, model, evaluation_sampler(settings), layout,
                     "max_eval_samples", StreamEnd::after_one_epoch);
}

}  // namespace drover
