#include "run/run_data.h"

#include <fmt/format.h>

#include <numeric>

#include "core/error.h"
#include "core/number_text.h"
#include "run/settings/run_settings.h"
#include "train/loop/text_stream_data.h"

namespace drover {
namespace {

/// Blocks are never padded, and every token in them is a label.
TokenId pad_id(const std::string& name, Packing packing, const Tokenizer* found) {
    if (packing == Packing::hf || found == nullptr) return 0;
    const Tokenizer& tokenizer = *found;
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

/// Of an epoch, over all replicas.
std::int64_t rows_of_whole_updates(std::int64_t rows, const TrainerSettings& loop) {
    const std::int64_t update =
        loop.per_device_train_batch_size * loop.gradient_accumulation_steps * loop.replicas;
    if (rows < update)
        throw Error(fmt::format("The data has {}, too few for an update of {} ({} for each of {} replicas).",
                                counted(rows, "row"), update, update / loop.replicas, loop.replicas),
                    "Use more data, or a smaller batch.");
    return rows / update * update;
}

std::unique_ptr<TrainingData> make_data(const TokenSplit& split, std::optional<std::int64_t> max_samples,
                                        const RunSettings& settings, const ModelSource& model,
                                        const TokenSource& tokens, SamplerOptions sampler,
                                        const BatchLayout& layout, StreamEnd end,
                                        const std::vector<double>& weights) {
    const CollatorOptions collator{
        .pad_id = tokens.pad_id
                      ? *tokens.pad_id
                      : pad_id(settings.data.pad_token, split.packing.packing, model.tokenizer.get()),
        .ignore_every_pad_id = split.packing.packing == Packing::none && !settings.data.sft,
        .pad_to_multiple_of = std::lcm(layout.row_multiple, tokens.pad_to_multiple_of),
        .drops_first_labels = settings.data.sft && settings.data.sft->is_padding_free()};
    if (split.streamed.empty()) {
        if (!weights.empty()) sampler.mixture = Mixture{.sizes = split.dataset_rows, .weights = weights};
        return std::make_unique<TokenFileData>(*split.rows,
                                               LoaderOptions{.sampler = std::move(sampler),
                                                             .collator = collator,
                                                             .part = layout.part,
                                                             .max_samples = max_samples},
                                               end);
    }
    PackingOptions packing = split.packing;
    packing.max_rows = max_samples;
    return std::make_unique<TextStreamData>(TextStreamOptions{
        .datasets = split.streamed,
        .examples = split.streamed_examples,
        .weights = weights,
        .tokenizer = model.tokenizer,
        .packing = packing,
        .dealing = {.batch_size = sampler.batch_size, .ranks = sampler.ranks, .rank = sampler.rank},
        .collator = collator,
        .vocab_size = model.config.vocab_size,
        .end = end,
        .part = layout.part});
}

}  // namespace

std::unique_ptr<TrainingData> training_data(const RunSettings& settings, const TrainerSettings& loop,
                                            const ModelSource& model, const TokenSource& tokens,
                                            const BatchLayout& layout) {
    SamplerOptions sampler = training_sampler(loop);
    sampler.order = settings.data.order;
    if (sampler.order == SampleOrder::by_length)
        sampler.length_group = loop.per_device_train_batch_size * loop.gradient_accumulation_steps;
    std::optional<std::int64_t> most = settings.data.max_train_samples;
    if (settings.data.strided) {
        if (tokens.train.packing.packing == Packing::none)
            throw Error("The rows of the data have different lengths.",
                        "Tokenize the text into blocks of one length, as `drover tokenize` does.");
        sampler.strided = sampler.drop_last = true;
        most = rows_of_whole_updates(tokens.train.rows->size(), loop);
    }
    return make_data(tokens.train, most, settings, model, tokens, std::move(sampler), layout,
                     StreamEnd::never, settings.data.dataset_weights);
}

std::unique_ptr<TrainingData> evaluation_data(const RunSettings& settings, const TrainerSettings& loop,
                                              const ModelSource& model, const TokenSource& tokens,
                                              const BatchLayout& layout) {
    return make_data(tokens.validation, settings.data.max_eval_samples, settings, model, tokens,
                     evaluation_sampler(loop), layout, StreamEnd::after_one_epoch, {});
}

BatchLayout deal_batches(const MeshPlan& plan, const Mesh& mesh, Packing packing, TrainerSettings& settings) {
    BatchLayout layout;
    const ReplicaPart part{.replicas = mesh.replicas().size(), .replica = mesh.replicas().rank()};
    if (plan.batch_is_global) {
        layout.part = part;
    } else {
        settings.replicas = part.replicas;
        settings.replica = part.replica;
    }
    if (packing == Packing::none && plan.splits_tokens(0)) layout.row_multiple = mesh.tp().size();
    return layout;
}

}  // namespace drover
