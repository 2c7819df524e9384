#include "model/inference_model.h"

#include <fmt/format.h>

#include "core/error.h"
#include "model/block.h"
#include "model/rope_table.h"

namespace drover {
namespace {

Precision all_in(DType dtype) {
    return {.parameters = dtype, .residual = dtype, .gradients = dtype, .moments = dtype};
}

}  // namespace

InferenceModel::InferenceModel(const ModelConfig& config, const InferenceOptions& options, Backend& backend)
    : config_(config),
      options_(options),
      backend_(backend),
      parallel_(mesh_.tp(), false),
      store_(make_param_spec(config_), mesh_, false, options.dtype, std::nullopt) {
    require(options.sequences > 0 && options.capacity > 0 && options.new_tokens > 0, "an empty model");
    if (config_.head_dim > CachedAttention::largest_head)
        throw Error(fmt::format("The model's head_dim is {}, but generation takes at most {}.",
                                config_.head_dim, CachedAttention::largest_head),
                    "Use a model with smaller heads.");
    Arena measuring = Arena::measuring(backend.device());
    plan(measuring);
    memory_plan_ = measuring.plan();
}

void InferenceModel::plan(Arena& arena) {
    const auto make = [&](MemoryUse use, DType dtype, const Shape& shape) {
        return arena.make(use, dtype, shape);
    };
    const std::int64_t tokens = options_.new_tokens;
    const BlockShape largest = BlockShape::make(config_, MoeMode::grouped, parallel_, 1, tokens);
    store_.plan(arena);
    for (Tensor* tensor : {&ids_, &positions_, &sequence_of_})
        *tensor = make(MemoryUse::batch, DType::i32, {tokens});
    for (Tensor* tensor : {&rope_cosine_, &rope_sine_})
        *tensor = make(MemoryUse::batch, DType::f32, {options_.capacity, config_.head_dim / 2});
    cache_ = {};
    const Shape cached = {options_.sequences, options_.capacity, largest.kv_heads, largest.head_dim};
    for (std::int64_t i = 0; i < config_.num_hidden_layers; ++i) {
        cache_.keys.push_back(make(MemoryUse::attention_activations, options_.dtype, cached));
        cache_.values.push_back(make(MemoryUse::attention_activations, options_.dtype, cached));
    }
    const Precision precision = all_in(options_.dtype);
    const std::vector<KeptBlock> one_for_all(1);
    activations_.plan_kept(arena, largest, precision, one_for_all, false);
    {
        const Arena::Scope block_turn(arena);
        activations_.plan_block_scratch(arena, largest, precision, one_for_all, parallel_, MoeMode::grouped);
    }
    const Arena::Scope head_turn(arena);
    final_residual_ = make(MemoryUse::head, options_.dtype, {options_.logits, config_.hidden_size});
    final_rstd_ = make(MemoryUse::head, DType::f32, {options_.logits});
    final_normed_ = make(MemoryUse::head, options_.dtype, {options_.logits, config_.hidden_size});
    logits_ = make(MemoryUse::head, options_.dtype, {options_.logits, config_.vocab_size});
    if (options_.dtype != DType::f32)
        logits_f32_ = make(MemoryUse::head, DType::f32, {options_.logits, config_.vocab_size});
}

void InferenceModel::allocate() {
    arena_ =
        std::make_unique<Arena>(backend_.allocate(memory_plan_.total), memory_plan_.total, backend_.device());
    plan(*arena_);
    require(arena_->plan().total == memory_plan_.total, "the allocation differs from its plan");
    const RopeTable table = rope_table(config_, options_.capacity, options_.dtype);
    const Stream stream = backend_.main_stream();
    backend_.copy(stream, Tensor::of(table.cosine.data(), rope_cosine_.shape()), rope_cosine_);
    backend_.copy(stream, Tensor::of(table.sine.data(), rope_sine_.shape()), rope_sine_);
    backend_.synchronize(stream);
}

void InferenceModel::upload(Stream stream, std::span<const NewToken> tokens) {
    std::vector<std::int32_t> ids, positions, sequence_of;
    for (const NewToken& token : tokens) {
        if (token.id < 0 || token.id >= config_.vocab_size)
            throw Error(fmt::format("The token id {} is not below the model's vocab_size, {}.", token.id,
                                    config_.vocab_size),
                        "Use the tokenizer that belongs to this model.");
        require(token.sequence >= 0 && token.sequence < options_.sequences,
                "a sequence that was not planned");
        require(token.position >= 0 && token.position < options_.capacity, "a position beyond the cache");
        ids.push_back(token.id);
        positions.push_back(token.position);
        sequence_of.push_back(token.sequence);
    }
    const auto count = static_cast<std::int64_t>(tokens.size());
    const auto put = [&](const std::vector<std::int32_t>& values, const Tensor& to) {
        backend_.copy(stream, Tensor::of(values.data(), {count}), to.rows(0, count));
    };
    put(ids, ids_);
    put(positions, positions_);
    put(sequence_of, sequence_of_);
}

Tensor InferenceModel::forward(Stream stream, std::span<const NewToken> tokens, std::int64_t count) {
    const auto n = static_cast<std::int64_t>(tokens.size());
    require(n > 0 && n <= options_.new_tokens, "more new tokens than planned");
    require(count > 0 && count <= n && count <= options_.logits, "more logits than planned");
    upload(stream, tokens);

    const BlockShape shape = BlockShape::make(config_, MoeMode::grouped, parallel_, 1, n);
    const DeviceBatch batch{.ids = ids_.rows(0, n),
                            .targets = {},
                            .positions = positions_.rows(0, n),
                            .counts = {},
                            .sequences = {.rows = 1, .row_length = n}};
    KeyValueCache cache = cache_;
    cache.sequence_of = sequence_of_.rows(0, n);
    const BlockContext context{.run = {backend_, stream},
                               .parallel = parallel_,
                               .shape = shape,
                               .batch = batch,
                               .rope_cosine = rope_cosine_,
                               .rope_sine = rope_sine_,
                               .norm_eps = static_cast<float>(config_.rms_norm_eps),
                               .config = config_,
                               .scratch = activations_.scratch().prefix(shape),
                               .cache = &cache,
                               .chosen = config_.moe.chosen};
    // All blocks write the same buffers: a block has read its predecessor's stream before it writes its own.
    const BlockActivations activations = activations_.block(0, 0).prefix(shape);
    const int blocks = static_cast<int>(config_.num_hidden_layers);
    const Tensor embedding = store_.get(stream, UnitIndex::embedding)[EmbeddingStorage::weight];
    context.run(Embedding{.ids = batch.ids, .weight = embedding, .y = activations.residual});
    Tensor residual, branch;
    for (int i = 0; i < blocks; ++i) {
        branch = DecoderBlock(context, store_.get(stream, UnitIndex::block(i)), activations, i)
                     .forward(residual, branch);
        residual = activations.mid_residual;
    }

    const UnitTensors head = store_.get(stream, UnitIndex::head(blocks));
    const Tensor normed = final_normed_.rows(0, count);
    context.run(RmsNorm{.x = branch.rows(n - count, count),
                        .residual_in = residual.rows(n - count, count),
                        .residual_out = final_residual_.rows(0, count),
                        .weight = head[HeadStorage::norm],
                        .y = normed,
                        .rstd = final_rstd_.rows(0, count),
                        .eps = context.norm_eps});
    const Tensor logits = logits_.rows(0, count);
    context.run(
        Gemm::forward(normed, config_.tie_word_embeddings ? embedding : head[HeadStorage::weight], logits));
    if (!logits_f32_) return logits;
    context.run(Cast{.from = logits, .to = logits_f32_.rows(0, count)});
    return logits_f32_.rows(0, count);
}

std::vector<float> InferenceModel::logits(Stream stream, std::span<const NewToken> tokens,
                                          std::int64_t count) {
    const Tensor on_device = forward(stream, tokens, count);
    std::vector<float> values(static_cast<std::size_t>(on_device.numel()));
    backend_.copy(stream, on_device, Tensor::of(values.data(), on_device.shape()));
    backend_.synchronize(stream);
    return values;
}

}  // namespace drover
