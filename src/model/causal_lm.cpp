#include "model/causal_lm.h"

#include <fmt/format.h>

#include <cmath>

#include "core/counter_rng.h"
#include "model/block.h"
#include "model/rope_table.h"

namespace drover {

CausalLm::CausalLm(const ModelConfig& config, const CausalLmOptions& options, Backend& backend,
                   ParamStore& store, const TensorParallel& parallel, Communicator& replicas)
    : config_(config),
      options_(options),
      backend_(backend),
      store_(store),
      parallel_(parallel),
      replicas_(replicas) {}

void CausalLm::plan(Arena& arena) {
    const BlockShape largest =
        BlockShape::make(config_, options_.moe_mode, parallel_, options_.rows, options_.row_length);
    const int blocks = static_cast<int>(config_.num_hidden_layers);
    batch_buffers_.plan(arena, options_.rows, options_.row_length);
    rope_cosine_ = arena.make(MemoryUse::batch, DType::f32, {options_.row_length, config_.head_dim / 2});
    rope_sine_ = arena.make(MemoryUse::batch, DType::f32, {options_.row_length, config_.head_dim / 2});
    activations_.plan_kept(arena, largest, options_.precision, options_.recompute, blocks);
    dresidual_ =
        arena.make(MemoryUse::residual_stream, options_.precision.residual, {largest.held, largest.hidden});
    head_.plan_results(arena, largest);
    if (has_balance_loss()) {
        const auto make = [&](DType dtype, const Shape& shape) {
            return arena.make(MemoryUse::scratch, dtype, shape);
        };
        choices_ = make(DType::f64, {config_.moe.chosen, config_.moe.experts});
        probability_sums_ = make(DType::f64, {config_.moe.experts});
        balance_ = make(DType::f32, {config_.moe.experts});
        balance_loss_ = make(DType::f64, {1});
    }
    // Blocks and head never run at the same time, so their scratch buffers share one region.
    {
        const Arena::Scope block_turn(arena);
        activations_.plan_block_scratch(arena, largest, options_.precision, options_.recompute, blocks,
                                        parallel_, options_.moe_mode);
    }
    {
        const Arena::Scope head_turn(arena);
        head_.plan_scratch(arena, largest, options_.precision, config_.vocab_size, parallel_,
                           options_.label_smoothing > 0);
    }
}

Range CausalLm::vocabulary() const {
    return split_range(config_.vocab_size, parallel_.axis().size(), parallel_.axis().rank());
}

void CausalLm::initialize(Stream stream) {
    const RopeTable table = rope_table(config_, options_.row_length,
                                       options_.rope_rounding.value_or(options_.precision.residual));
    backend_.copy(stream, Tensor::of(table.cosine.data(), rope_cosine_.shape()), rope_cosine_);
    backend_.copy(stream, Tensor::of(table.sine.data(), rope_sine_.shape()), rope_sine_);
}

/// One pass of a micro-batch through the model.
struct CausalLm::Pass {
    CausalLm& model;
    ParamStore& store;
    Stream stream;
    const DeviceBatch& batch;
    BlockContext context;
    HeadBuffers head_buffers;
    Head head;
    int blocks;

    Pass(CausalLm& owner, Stream on, const DeviceBatch& micro)
        : model(owner),
          store(owner.store_),
          stream(on),
          batch(micro),
          context(make_context(owner, on, micro)),
          head_buffers(owner.head_.prefix(context.shape)),
          head(context.run, owner.parallel_, micro, head_buffers,
               {.vocab_size = owner.config_.vocab_size,
                .vocabulary = owner.vocabulary(),
                .norm_eps = context.norm_eps,
                .label_smoothing = static_cast<float>(owner.options_.label_smoothing)}),
          blocks(static_cast<int>(owner.config_.num_hidden_layers)) {}

    static BlockContext make_context(CausalLm& owner, Stream on, const DeviceBatch& micro) {
        const BlockShape shape = BlockShape::make(owner.config_, owner.options_.moe_mode, owner.parallel_,
                                                  micro.sequences.rows, micro.sequences.row_length);
        return {.run = {owner.backend_, on},
                .parallel = owner.parallel_,
                .shape = shape,
                .batch = micro,
                .rope_cosine = owner.rope_cosine_,
                .rope_sine = owner.rope_sine_,
                .norm_eps = static_cast<float>(owner.config_.rms_norm_eps),
                .config = owner.config_,
                .scratch = owner.activations_.scratch().prefix(shape),
                .chosen = owner.config_.moe.chosen,
                .choices = owner.choices_,
                .probability_sums = owner.probability_sums_,
                .balance = owner.balance_,
                .jitter = static_cast<float>(owner.config_.moe.jitter)};
    }

    BlockActivations activations(int block) const {
        return model.activations_.block(block).prefix(context.shape);
    }

    /// The unit that holds the vocabulary projection, and its storage there.
    bool tied() const { return model.config_.tie_word_embeddings; }
    int projection_unit() const { return tied() ? UnitIndex::embedding : UnitIndex::head(blocks); }
    std::size_t projection_storage() const {
        return tied() ? std::size_t{EmbeddingStorage::weight} : std::size_t{HeadStorage::weight};
    }

    /// Embedding, all blocks, and the final norm. The head's weights stay gathered. `look` is called with
    /// each tensor that leaves a layer, and with the layer's number, −1 for the embedding and the number of
    /// blocks for the final norm.
    template <class Look>
    void forward(const Look& look, bool first_piece = true) {
        const bool ahead = model.options_.gather_ahead.forward;
        store.gather(stream, UnitIndex::embedding);
        if (ahead) store.gather(stream, UnitIndex::block(0));
        embed();
        look(-1, activations(0).residual);
        if (model.has_balance_loss() && first_piece) {
            context.run(Fill{model.choices_, 0});
            context.run(Fill{model.probability_sums_, 0});
        }
        Tensor residual, branch;  // the stream, and what must still be added to it
        for (int i = 0; i < blocks; ++i) {
            if (ahead) store.gather(stream, UnitIndex::block(i) + 1);
            const UnitTensors weights = store.get(stream, UnitIndex::block(i));
            const BlockActivations a = activations(i);
            branch = DecoderBlock(context, weights, a, i).forward(residual, branch);
            residual = a.mid_residual;
            look(i, residual);
            look(i, branch);
            store.release(stream, UnitIndex::block(i));
        }
        head.norm(store.get(stream, UnitIndex::head(blocks))[HeadStorage::norm], residual, branch);
        look(blocks, head_buffers.normed);
    }

    void forward(bool first_piece = true) {
        forward([](int, const Tensor&) {}, first_piece);
    }

    /// The routers' sums over all tokens of all replicas → the balance loss and its gradient.
    void balance_experts(double scale) {
        if (!model.has_balance_loss()) return;
        model.replicas_.all_reduce(stream, model.choices_, Reduction::sum);
        model.replicas_.all_reduce(stream, model.probability_sums_, Reduction::sum);
        context.run(BalanceLoss{.choices = model.choices_,
                                .probability_sums = model.probability_sums_,
                                .loss = model.balance_loss_,
                                .balance = model.balance_,
                                .coefficient = model.config_.moe.balance_coefficient,
                                .scale = scale});
    }

    /// ids → the first block's residual. A rank that holds part of the vocabulary contributes its tokens'
    /// rows.
    void embed() {
        const Tensor weight = store.get(stream, UnitIndex::embedding)[EmbeddingStorage::weight];
        const Tensor residual = activations(0).residual;
        if (model.parallel_.splits_tokens()) {
            context.run(Embedding{.ids = batch.ids,
                                  .weight = weight,
                                  .y = context.scratch.branch,
                                  .first_id = model.vocabulary().begin});
            model.parallel_.leave(stream, context.scratch.branch, residual);
        } else {
            context.run(Embedding{
                .ids = batch.ids, .weight = weight, .y = residual, .first_id = model.vocabulary().begin});
            model.parallel_.leave(stream, residual, residual);
        }
        store.release(stream, UnitIndex::embedding);
        if (model.options_.neftune_alpha > 0 && batch.noise) add_noise(*batch.noise, residual);
    }

    /// NEFTune: the noise has no gradient, so only forward handles it.
    void add_noise(const TokenNoise& noise, const Tensor& embedded /*[held,H]*/) {
        const auto elements = static_cast<double>(batch.sequences.row_length * model.config_.hidden_size);
        constexpr std::uint64_t name = leaf_hash("neftune_noise");
        context.run(
            JitterTokens{.x = embedded,
                         .scalars = noise.scalars,
                         .first_token = noise.first_token + context.first_held(),
                         .amplitude = static_cast<float>(model.options_.neftune_alpha / std::sqrt(elements)),
                         .seed = noise.seed,
                         .leaf = philox_stream(name, noise.micro_batch),
                         .added = true});
    }

    void evaluate_loss() {
        head.evaluate(store.get(stream, projection_unit())[projection_storage()]);
        release_head();
    }

    void release_head() {
        store.release(stream, UnitIndex::head(blocks));
        if (tied()) store.release(stream, UnitIndex::embedding);
    }

    void loss_and_head_backward(const Tensor& loss_scale) {
        const int head_unit = UnitIndex::head(blocks);
        const Tensor norm_weight = store.get(stream, head_unit)[HeadStorage::norm];
        const Tensor weight = store.get(stream, projection_unit())[projection_storage()];
        const UnitGradients head_gradients = store.grad(stream, head_unit);
        const UnitGradients gradients = tied() ? store.grad(stream, UnitIndex::embedding) : head_gradients;
        head.loss_and_gradient(weight, gradients.tensors[projection_storage()], gradients.accumulate,
                               loss_scale);
        head.norm_backward(norm_weight, head_gradients.tensors[HeadStorage::norm], head_gradients.accumulate,
                           dresidual());
        store.reduce(stream, head_unit);
        release_head();
    }

    void blocks_backward() {
        store.gather(stream, UnitIndex::block(blocks - 1));
        for (int i = blocks - 1; i >= 0; --i) {
            if (i > 0 && model.options_.gather_ahead.backward) store.gather(stream, UnitIndex::block(i - 1));
            const UnitTensors weights = store.get(stream, UnitIndex::block(i));
            DecoderBlock(context, weights, activations(i), i)
                .backward(store.grad(stream, UnitIndex::block(i)), dresidual(),
                          model.options_.recompute.of_block(i));
            store.reduce(stream, UnitIndex::block(i));
            store.release(stream, UnitIndex::block(i));
        }
    }

    void embedding_backward() {
        const UnitGradients gradients = store.grad(stream, UnitIndex::embedding);
        const Tensor dy = model.parallel_.enter(stream, dresidual(), context.scratch.gathered);  // [N,H]
        context.run(EmbeddingBackward{.ids = batch.ids,
                                      .dy = dy,
                                      .dweight = gradients.tensors[EmbeddingStorage::weight],
                                      .first_id = model.vocabulary().begin,
                                      .padding_id = model.config_.pad_token_id,
                                      .accumulate = gradients.accumulate});
        store.reduce(stream, UnitIndex::embedding);
    }

    Tensor dresidual() const { return model.dresidual_.rows(0, context.shape.held); }
};

void CausalLm::forward_backward(Stream stream, const DeviceBatch& batch, const Tensor& loss_scale,
                                double balance_scale) {
    Pass pass(*this, stream, batch);
    pass.forward();
    pass.balance_experts(balance_scale);
    pass.loss_and_head_backward(loss_scale);
    pass.blocks_backward();
    pass.embedding_backward();
}

void CausalLm::evaluate(Stream stream, const DeviceBatch& batch, bool first_piece, bool last_piece) {
    Pass pass(*this, stream, batch);
    pass.forward(first_piece);
    if (last_piece) pass.balance_experts(0);
    pass.evaluate_loss();
}

std::string CausalLm::find_non_finite(Stream stream, const DeviceBatch& batch, Communicator& everyone,
                                      const Tensor& sums) {
    Pass pass(*this, stream, batch);
    std::string found;
    const auto is_finite = [&](const Tensor& x) {
        double sum = 0;
        const Tensor only[] = {x};
        backend_.run(stream, SumOfSquares{.tensors = only, .sums = sums});
        everyone.all_reduce(stream, sums, Reduction::sum);
        backend_.copy(stream, sums, Tensor::of(&sum, {1}));
        backend_.synchronize(stream);
        everyone.check_unbroken();
        return std::isfinite(sum);
    };
    pass.forward([&](int layer, const Tensor& x) {
        if (!found.empty() || is_finite(x)) return;
        found = layer < 0             ? "the embeddings (model.embed_tokens)"
                : layer < pass.blocks ? fmt::format("the output of layer {} (model.layers.{})", layer, layer)
                                      : "the final norm (model.norm)";
    });
    pass.evaluate_loss();
    if (found.empty() && !is_finite(head_.loss.rows(0, batch.tokens()))) found = "the logits (lm_head)";
    return found;
}

}  // namespace drover
