#include "model/causal_lm.h"

#include <cmath>
#include <map>

#include "core/counter_rng.h"
#include "model/block.h"
#include "model/rope_table.h"
#include "model/weight_product.h"

namespace drover {

CausalLm::CausalLm(const ModelConfig& config, const CausalLmOptions& options, const Stage& stage,
                   Backend& backend, ParamStore& store, const TensorParallel& parallel,
                   Communicator& replicas)
    : config_(config),
      options_(options),
      stage_(stage),
      backend_(backend),
      store_(store),
      parallel_(parallel),
      replicas_(replicas),
      adapters_(adapter_settings()) {}

AdapterSettings CausalLm::adapter_settings() const {
    AdapterSettings settings{.dropout = options_.adapters.dropout, .scales = {}};
    settings.scales.resize(static_cast<std::size_t>(config_.num_hidden_layers));
    std::map<std::string_view, double> scale_of;
    for (const AdaptedWeight& weight : options_.adapters.weights) scale_of.emplace(weight.leaf, weight.scale);
    for (const StageChunk& chunk : stage_.chunks)
        for (int i = 0; i < chunk.blocks(); ++i) {
            const UnitSpec& unit = stage_.spec.units[static_cast<std::size_t>(chunk.first_block + i)];
            for (const AdapterStorages& storages : adapter_storages())
                for (const BlockStorage::Index b : storages.b)
                    if (const std::vector<LeafSpec>& leaves = unit.storages[b].leaves; !leaves.empty())
                        settings.scales[static_cast<std::size_t>(chunk.block(i))][b] =
                            static_cast<float>(scale_of.at(leaves[0].adapted));
        }
    return settings;
}

const AdaptedWeight* CausalLm::adapter_of(std::string_view leaf) const {
    for (const AdaptedWeight& weight : options_.adapters.weights)
        if (weight.leaf == leaf) return &weight;
    return nullptr;
}

HeadBuffers::Sizes CausalLm::head_sizes() const {
    const AdaptedWeight* const adapter = adapter_of(head_leaf);
    return {.vocab_size = config_.vocab_size,
            .label_smoothing = options_.label_smoothing > 0,
            .counts_predictions = options_.counts_predictions,
            .rank = adapter ? adapter->rank : 0,
            .adapter_drops = options_.adapters.dropout > 0};
}

void EmbeddingAdapterBuffers::plan(Arena& arena, std::int64_t tokens, std::int64_t vocabulary,
                                   std::int64_t rank, DType compute) {
    const auto make = [&](DType dtype, std::int64_t rows) {
        return arena.make(MemoryUse::scratch, dtype, {rows, rank});
    };
    a = make(compute, vocabulary);
    da = make(DType::f32, vocabulary);
    t = make(compute, tokens);
    dt = make(compute, tokens);
}

std::vector<KeptBlock> CausalLm::kept_blocks() const {
    std::vector<KeptBlock> blocks;
    for (const StageChunk& chunk : stage_.chunks)
        for (int i = 0; i < chunk.blocks(); ++i) {
            KeptBlock block{.recompute = options_.recompute.of_block(chunk.block(i)),
                            .slots = chunk.slots,
                            .adapters_drop = options_.adapters.dropout > 0,
                            .magnitudes = options_.adapters.magnitudes,
                            .fp8 = options_.fp8,
                            .keeps_frozen_fp8 = options_.keeps_frozen_fp8};
            const UnitSpec& unit = stage_.spec.units[static_cast<std::size_t>(chunk.first_block + i)];
            for (const AdapterStorages& storages : adapter_storages()) {
                std::int64_t ranks = 0;
                for (const LeafSpec& leaf : unit.storages[storages.a].leaves) ranks += leaf.shape[0];
                if (storages.has_experts() && config_.has_experts()) ranks /= config_.moe.experts;
                if (storages.weight == BlockStorage::router) {
                    block.router_rank = ranks;
                    continue;
                }
                const auto matrix = static_cast<std::size_t>(adapted_matrix(storages.weight));
                if (ranks > 0) block.ranks[matrix] = ranks;
                if (const StorageSpec& weight = unit.storages[storages.weight]; !weight.leaves.empty())
                    block.frozen[matrix] = !weight.has_trained_leaf();
            }
            blocks.push_back(block);
        }
    return blocks;
}

/// Backward goes from the last block to the first and then to the embedding: what gradients of the next unit
/// are written into, a block's activations have left. A tied embedding gets its first gradients from the
/// head.
std::vector<std::vector<Tensor>> CausalLm::gradients_after_blocks() const {
    if (!options_.one_micro_batch) return {};
    require(stage_.chunks.size() == 1 && stage_.embeds(), "a rank of a pipeline has several micro-batches");
    const StageChunk& chunk = stage_.chunks[0];
    std::vector<std::vector<Tensor>> later;
    for (int i = 0; i < chunk.blocks(); ++i) {
        if (i > 0)
            later.push_back(store_.gradient_memory(chunk.first_block + i - 1));
        else
            later.push_back(config_.tie_word_embeddings ? std::vector<Tensor>()
                                                        : store_.gradient_memory(chunk.embedding));
    }
    return later;
}

void CausalLm::plan(Arena& arena) {
    const BlockShape largest =
        BlockShape::make(config_, options_.moe_mode, parallel_, options_.rows, options_.row_length);
    const std::vector<KeptBlock> blocks = kept_blocks();
    const bool has_head = stage_.head_chunk() != nullptr;
    batch_buffers_.plan(arena, options_.rows, options_.row_length, options_.batches);
    rope_cosine_ = arena.make(MemoryUse::batch, DType::f32, {options_.row_length, config_.head_dim / 2});
    rope_sine_ = arena.make(MemoryUse::batch, DType::f32, {options_.row_length, config_.head_dim / 2});
    activations_.plan_kept(arena, largest, options_.precision, blocks, options_.weight_gradients_wait,
                           gradients_after_blocks());
    dresidual_ =
        arena.make(MemoryUse::residual_stream, options_.precision.residual, {largest.held, largest.hidden});
    if (has_head) head_.plan_results(arena, largest, head_sizes());
    if (has_balance_loss()) {
        const auto make = [&](DType dtype, const Shape& shape) {
            return arena.make(MemoryUse::scratch, dtype, shape);
        };
        routing_sums_ = make(DType::f64, {(config_.moe.chosen + 1) * config_.moe.experts});
        balance_ = make(DType::f32, {config_.moe.experts});
        balance_loss_ = make(DType::f64, {1});
    }
    // Blocks and head never run at the same time, so their scratch buffers share one region.
    {
        const Arena::Scope block_turn(arena);
        activations_.plan_block_scratch(arena, largest, options_.precision, blocks, parallel_,
                                        options_.moe_mode);
        const AdaptedWeight* const adapter = adapter_of(embedding_leaf);
        if (adapter && stage_.embeds())
            embedding_adapter_.plan(arena, largest.tokens, vocabulary().count, adapter->rank,
                                    options_.precision.parameters);
    }
    if (has_head) {
        const Arena::Scope head_turn(arena);
        head_.plan_scratch(arena, largest, options_.precision, parallel_, head_sizes());
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

void CausalLm::prepare(Stream stream) {
    if (!frozen_changed_) return;
    frozen_changed_ = false;
    const Runner run{backend_, stream};
    for (const StageChunk& chunk : stage_.chunks)
        for (int i = 0; i < chunk.blocks(); ++i) {
            const Fp8Copies* const copies = activations_.fp8_weights(chunk.blocks_before + i);
            if (copies == nullptr) continue;
            const int unit = chunk.first_block + i;
            WeightProduct::copy_weights(run, parallel_, config_.moe.experts, store_.get(stream, unit),
                                        *copies, activations_.scratch().fp8.weight);
            store_.release(stream, unit);
        }
}

void CausalLm::clear_routing_sums(Stream stream) {
    if (has_balance_loss()) backend_.run(stream, Fill{routing_sums_, 0});
}

/// One pass of a micro-batch through a chunk.
struct CausalLm::Pass {
    CausalLm& model;
    ParamStore& store;
    Stream stream;
    const StageChunk& chunk;
    int slot;
    const DeviceBatch& batch;
    BlockContext context;
    HeadBuffers head_buffers;
    Head head;

    Pass(CausalLm& owner, Stream on, const ChunkRun& run, const Tensor& balance = {})
        : model(owner),
          store(owner.store_),
          stream(on),
          chunk(owner.stage_.chunks[static_cast<std::size_t>(run.chunk)]),
          slot(run.slot),
          batch(run.batch),
          context(make_context(owner, on, run.batch, balance)),
          head_buffers(chunk.head >= 0 ? owner.head_.prefix(context.shape) : HeadBuffers()),
          head(context.run, owner.parallel_, run.batch, head_buffers,
               {.vocab_size = owner.config_.vocab_size,
                .vocabulary = owner.vocabulary(),
                .norm_eps = context.norm_eps,
                .label_smoothing = static_cast<float>(owner.options_.label_smoothing),
                .adapter_scale = scale_of(owner.adapter_of(head_leaf)),
                .adapter_dropout = owner.options_.adapters.dropout}) {}

    static float scale_of(const AdaptedWeight* adapter) {
        return adapter ? static_cast<float>(adapter->scale) : 1.f;
    }

    static BlockContext make_context(CausalLm& owner, Stream on, const DeviceBatch& micro,
                                     const Tensor& balance) {
        const BlockShape shape = BlockShape::make(owner.config_, owner.options_.moe_mode, owner.parallel_,
                                                  micro.sequences.rows, micro.sequences.row_length);
        const MoeConfig& moe = owner.config_.moe;
        Tensor choices, probability_sums;
        if (owner.routing_sums_) {
            choices = owner.routing_sums_.rows(0, moe.chosen * moe.experts).view({moe.chosen, moe.experts});
            probability_sums = owner.routing_sums_.rows(moe.chosen * moe.experts, moe.experts);
        }
        return {.run = {owner.backend_, on},
                .parallel = owner.parallel_,
                .shape = shape,
                .batch = micro,
                .rope_cosine = owner.rope_cosine_,
                .rope_sine = owner.rope_sine_,
                .norm_eps = static_cast<float>(owner.config_.rms_norm_eps),
                .config = owner.config_,
                .scratch = owner.activations_.scratch().prefix(shape),
                .adapters = &owner.adapters_,
                .chosen = moe.chosen,
                .choices = choices,
                .probability_sums = probability_sums,
                .balance = balance,
                .jitter = static_cast<float>(moe.jitter)};
    }

    BlockActivations activations(int block) const {
        return model.activations_.block(chunk.blocks_before + block, slot).prefix(context.shape);
    }
    int block_unit(int block) const { return chunk.first_block + block; }

    bool tied() const { return model.config_.tie_word_embeddings; }
    /// Weights of the projection, or their gradients. A head that is the embedding has no adapter.
    Projection projection(UnitTensors unit) const {
        if (tied()) return {.weight = unit[EmbeddingStorage::weight]};
        return {.weight = unit[HeadStorage::weight],
                .a = unit[HeadStorage::adapter_a],
                .b = unit[HeadStorage::adapter_b]};
    }

    void forward(const ChunkInput& input, const Watch& watch) {
        const bool ahead = model.options_.gather_ahead.forward;
        if (chunk.embedding >= 0) store.gather(stream, chunk.embedding);
        if (ahead) store.gather(stream, block_unit(0));
        if (chunk.embedding >= 0)
            embed();
        else
            context.run.backend.copy(stream, input.residual, activations(0).residual);
        if (watch && chunk.embedding >= 0) watch(-1, activations(0).residual);
        if (input.routing_sums) context.run.backend.copy(stream, input.routing_sums, model.routing_sums_);
        Output output;
        for (int i = 0; i < chunk.blocks(); ++i) {
            const Scope layer = context.run.scope("DecoderLayer", chunk.block(i));
            const int next = i + 1 < chunk.blocks() ? block_unit(i + 1) : chunk.head;
            if (ahead && next >= 0) store.gather(stream, next);
            const UnitTensors weights = store.get(stream, block_unit(i));
            const BlockActivations a = activations(i);
            output.branch =
                DecoderBlock(context, weights, a, chunk.block(i)).forward(output.residual, output.branch);
            output.residual = a.mid_residual;
            if (watch) {
                watch(chunk.block(i), output.residual);
                watch(chunk.block(i), output.branch);
            }
            store.release(stream, block_unit(i));
        }
        model.output_ = output;
    }

    /// ids → the first block's residual. A rank that holds part of the vocabulary contributes its tokens'
    /// rows.
    void embed() {
        const Scope scope = context.run.scope("Embedding");
        const UnitTensors weights = store.get(stream, chunk.embedding);
        const Tensor weight = weights[EmbeddingStorage::weight];
        const Tensor residual = activations(0).residual;
        if (model.parallel_.splits_tokens()) {
            context.run(Embedding{.ids = batch.ids,
                                  .weight = weight,
                                  .y = context.scratch.branch,
                                  .first_id = model.vocabulary().begin});
            add_embedding_adapter(weights, context.scratch.branch);
            const bool casts = residual.dtype() != context.scratch.branch.dtype();
            const Tensor held = casts ? context.scratch.held_branch : residual;
            model.parallel_.leave(stream, context.scratch.branch, held);
            if (casts) context.run(Cast{.from = held, .to = residual});
        } else {
            context.run(Embedding{
                .ids = batch.ids, .weight = weight, .y = residual, .first_id = model.vocabulary().begin});
            add_embedding_adapter(weights, residual);
            model.parallel_.leave(stream, residual, residual);
        }
        store.release(stream, chunk.embedding);
        if (model.options_.neftune_alpha > 0 && batch.noise) add_noise(*batch.noise, residual);
    }

    /// t [N,r] = scale · (this rank's columns of A)ᵀ[ids].
    Tensor embedding_adapter_input(UnitTensors weights) {
        const EmbeddingAdapterBuffers& b = model.embedding_adapter_;
        const Tensor t = b.t.rows(0, batch.tokens());
        context.run(Transpose{.x = weights[EmbeddingStorage::adapter_a], .y = b.a});
        context.run(Embedding{.ids = batch.ids, .weight = b.a, .y = t, .first_id = model.vocabulary().begin});
        context.run(Scale{.x = t, .factor = scale_of(model.adapter_of(embedding_leaf))});
        return t;
    }

    /// y [N,H] += t · Bᵀ, if there is an adapter.
    void add_embedding_adapter(UnitTensors weights, const Tensor& y) {
        const Tensor& b = weights[EmbeddingStorage::adapter_b];
        if (!b) return;
        Gemm product = Gemm::forward(embedding_adapter_input(weights), b, y);
        product.accumulate = true;
        context.run(product);
    }

    /// dy [N,H] → the gradients of A and B. t is made again: it costs less than keeping it.
    void embedding_adapter_backward(const Tensor& dy, const UnitGradients& gradients) {
        const EmbeddingAdapterBuffers& b = model.embedding_adapter_;
        const UnitTensors weights = store.get(stream, chunk.embedding);
        const Tensor t = embedding_adapter_input(weights), dt = b.dt.rows(0, batch.tokens());  // [N,r]
        context.run(Gemm::weight_gradient(dy, t, gradients.tensors[EmbeddingStorage::adapter_b],
                                          gradients.accumulate));
        context.run(Gemm::data_gradient(dy, weights[EmbeddingStorage::adapter_b], dt));
        context.run(Scale{.x = dt, .factor = scale_of(model.adapter_of(embedding_leaf))});
        embedding_rows_backward(dt, b.da, false);
        context.run(Transpose{.x = b.da,
                              .y = gradients.tensors[EmbeddingStorage::adapter_a],
                              .accumulate = gradients.accumulate});
        store.release(stream, chunk.embedding);
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

    /// The final norm. The head's weights stay gathered.
    Tensor norm() {
        const Tensor weight = store.get(stream, chunk.head)[HeadStorage::norm];
        head.norm(weight, model.output_.residual, model.output_.branch);
        return weight;
    }

    void evaluate_loss(const Watch& watch) {
        const Scope scope = context.run.scope("LmHead");
        norm();
        if (watch) watch(static_cast<int>(model.config_.num_hidden_layers), head_buffers.normed);
        head.evaluate(projection(store.get(stream, chunk.projection)));
        release_head();
    }

    void release_head() {
        store.release(stream, chunk.head);
        if (chunk.projection != chunk.head) store.release(stream, chunk.projection);
    }

    void loss_and_head_backward(const Tensor& loss_scale) {
        const Scope scope = context.run.scope("LmHead");
        const Tensor norm_weight = norm();
        const Projection weights = projection(store.get(stream, chunk.projection));
        const UnitGradients head_gradients = store.grad(stream, chunk.head);
        const UnitGradients gradients = tied() ? store.grad(stream, chunk.projection) : head_gradients;
        head.loss_and_gradient(weights, projection(gradients.tensors), gradients.accumulate, loss_scale);
        head.norm_backward(norm_weight, head_gradients.tensors[HeadStorage::norm], head_gradients.accumulate,
                           dresidual());
        store.reduce(stream, chunk.head);
        // A tied embedding that this chunk embeds with gets more gradients at the end of its backward.
        if (tied() && chunk.projection != chunk.embedding) store.reduce(stream, chunk.projection);
        release_head();
    }

    void blocks_backward(BackwardPart part) {
        const int first = model.last_block_backward(chunk);
        if (first < chunk.blocks()) store.gather(stream, block_unit(chunk.blocks() - 1));
        for (int i = chunk.blocks() - 1; i >= first; --i) {
            const Scope layer = context.run.scope("DecoderLayer", chunk.block(i));
            if (i > first && model.options_.gather_ahead.backward) store.gather(stream, block_unit(i - 1));
            const UnitTensors weights = store.get(stream, block_unit(i));
            DecoderBlock(context, weights, activations(i), chunk.block(i))
                .backward(store.grad(stream, block_unit(i)), dresidual(),
                          model.options_.recompute.of_block(chunk.block(i)), part);
            if (part == BackwardPart::whole) store.reduce(stream, block_unit(i));
            store.release(stream, block_unit(i));
        }
    }

    void embedding_backward() {
        if (!model.unit_is_trained(chunk.embedding)) return;
        const Scope scope = context.run.scope("Embedding");
        const UnitGradients gradients = store.grad(stream, chunk.embedding);
        const bool adapts = static_cast<bool>(gradients.tensors[EmbeddingStorage::adapter_a]);
        const Tensor dy = embedding_gradient(adapts);
        if (adapts) embedding_adapter_backward(dy, gradients);
        if (const Tensor& dweight = gradients.tensors[EmbeddingStorage::weight])
            embedding_rows_backward(dy, dweight, gradients.accumulate);
        store.reduce(stream, chunk.embedding);
    }

    /// The rows of dy go to those of the ids.
    void embedding_rows_backward(const Tensor& dy, const Tensor& dweight, bool accumulate) {
        context.run(EmbeddingBackward{.ids = batch.ids,
                                      .dy = dy,
                                      .dweight = dweight,
                                      .first_id = model.vocabulary().begin,
                                      .padding_id = model.config_.pad_token_id,
                                      .accumulate = accumulate});
    }

    /// The gradient of what was embedded, [N,H]; where products need it, in their dtype.
    Tensor embedding_gradient(bool for_products) {
        Tensor held = dresidual();
        if ((model.parallel_.splits_tokens() || for_products) && context.scratch.dresidual_compute) {
            context.run(Cast{.from = held, .to = context.scratch.dresidual_compute});
            held = context.scratch.dresidual_compute;
        }
        return model.parallel_.enter(stream, held, context.scratch.gathered);
    }

    void backward(const ChunkBackward& settings) {
        store.begin_backward(chunk.units(), settings.place);
        if (chunk.head >= 0)
            loss_and_head_backward(settings.loss_scale);
        else
            context.run.backend.copy(stream, settings.dresidual, dresidual());
        blocks_backward(settings.part);
        if (chunk.embedding >= 0) embedding_backward();
    }

    void weight_gradients(ParamStore::PlaceInStep place) {
        store.begin_backward(chunk.block_units(), place);
        for (int i = chunk.blocks() - 1; i >= 0; --i) {
            const Scope layer = context.run.scope("DecoderLayer", chunk.block(i));
            DecoderBlock(context, store.get(stream, block_unit(i)), activations(i), chunk.block(i))
                .weight_gradients(store.grad(stream, block_unit(i)));
            store.reduce(stream, block_unit(i));
            store.release(stream, block_unit(i));
        }
    }

    Tensor dresidual() const { return model.dresidual_.rows(0, context.shape.held); }
};

bool CausalLm::unit_is_trained(int unit) const {
    return stage_.spec.units[static_cast<std::size_t>(unit)].has_trained_leaf();
}

int CausalLm::last_block_backward(const StageChunk& chunk) const {
    if (chunk.embedding < 0 || unit_is_trained(chunk.embedding)) return 0;
    int block = 0;
    while (block < chunk.blocks() && !unit_is_trained(chunk.first_block + block)) ++block;
    return block;
}

void CausalLm::gather_ahead(Stream stream, int chunk, bool forward) {
    const StageChunk& next = stage_.chunks[static_cast<std::size_t>(chunk)];
    if (!forward && last_block_backward(next) == next.blocks()) return;
    if (forward ? options_.gather_ahead.forward : options_.gather_ahead.backward)
        store_.gather(stream, forward ? next.first_block : next.first_block + next.blocks() - 1);
}

void CausalLm::forward(Stream stream, const ChunkRun& run, const ChunkInput& input, const Watch& watch) {
    const Scope scope(backend_, stream, "Model");
    Pass(*this, stream, run).forward(input, watch);
}

void CausalLm::put_output(Stream stream, const Tensor& to) const {
    const Scope scope(backend_, stream, "Model");
    backend_.copy(stream, output_.residual, to);
    backend_.run(stream, Add{.into = to, .x = output_.branch});
}

void CausalLm::balance_experts(Stream stream, double scale) {
    if (!has_balance_loss()) return;
    const Scope scope(backend_, stream, "BalanceLoss");
    const MoeConfig& moe = config_.moe;
    replicas_.all_reduce(stream, routing_sums_, Reduction::sum);
    backend_.run(
        stream,
        BalanceLoss{
            .choices = routing_sums_.rows(0, moe.chosen * moe.experts).view({moe.chosen, moe.experts}),
            .probability_sums = routing_sums_.rows(moe.chosen * moe.experts, moe.experts),
            .loss = balance_loss_,
            .balance = balance_,
            .coefficient = moe.balance_coefficient,
            .scale = scale});
}

void CausalLm::backward(Stream stream, const ChunkRun& run, const ChunkBackward& settings) {
    const Scope scope(backend_, stream, "Model");
    if (settings.balance) backend_.copy(stream, settings.balance, balance_);
    Pass pass(*this, stream, run, balance_);
    if (settings.part == BackwardPart::weights)
        pass.weight_gradients(settings.place);
    else
        pass.backward(settings);
}

Tensor CausalLm::input_gradient(const ChunkRun& run) const {
    return dresidual_.rows(0, held_tokens(run.batch.tokens()));
}

void CausalLm::evaluate_loss(Stream stream, const ChunkRun& run, const Watch& watch) {
    const Scope scope(backend_, stream, "Model");
    Pass(*this, stream, run).evaluate_loss(watch);
}

}  // namespace drover
