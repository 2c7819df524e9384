#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "model/block_activations.h"
#include "model/block_context.h"
#include "model/causal_lm_options.h"
#include "model/config.h"
#include "model/device_batch.h"
#include "model/head.h"
#include "model/stage.h"

namespace drover {

/// A micro-batch in one of a rank's chunks.
struct ChunkRun {
    int chunk = 0;
    int slot = 0;  ///< of the chunk: where its activations are kept until its backward is complete
    const DeviceBatch& batch;
};

/// What a chunk's forward takes from the stage before; all absent in the first stage.
struct ChunkInput {
    Tensor residual{};      ///< [held,H]: the residual stream
    Tensor routing_sums{};  ///< as CausalLm::routing_sums(), over the stages before
};

/// What a chunk's backward needs beside its activations.
struct ChunkBackward {
    BackwardPart part = BackwardPart::whole;
    ParamStore::PlaceInStep place{};
    Tensor loss_scale{};  ///< [1] f32 on the device; of the chunk with the head
    Tensor dresidual{};   ///< [held,H]: what the next stage sent back; of the other chunks
    Tensor balance{};     ///< likewise: CausalLm::balance() of the next stage
};

/// Room for the embedding's adapter, which works on the transpose of its A. Part of a block's scratch memory.
struct EmbeddingAdapterBuffers {
    Tensor a, da;  ///< [V,r], of the vocabulary rows held here; da f32
    Tensor t, dt;  ///< [N,r]

    void plan(Arena& arena, std::int64_t tokens, std::int64_t vocabulary, std::int64_t rank, DType compute);
};

/// A causal language model: embedding → blocks → head and loss, and back. Weights and gradients are reached
/// only through the store; the same code runs for every sharding of it. A rank of a pipeline has one or more
/// chunks of the layers; without a pipeline there is one chunk with all of them.
///
/// The stream between two blocks is a residual and a branch that is still to be added to it. Where a chunk
/// ends, put_output() adds them, with the rounding of the norm that would have done so.
class CausalLm {
  public:
    /// All references must outlive the model. `replicas` are the ranks that process other tokens with the
    /// same weights.
    CausalLm(const ModelConfig& config, const CausalLmOptions& options, const Stage& stage, Backend& backend,
             ParamStore& store, const TensorParallel& parallel, Communicator& replicas);

    /// Allocates the activations from the arena; called once against a measuring arena and once against a
    /// real one.
    void plan(Arena& arena);
    /// Whether a forward overwrites gradients of the backward before it.
    bool uses_memory_of_gradients() const { return options_.one_micro_batch; }
    /// Fills the constant tables; once, after the real plan.
    void initialize(Stream stream);

    /// The frozen weights have been written.
    void frozen_weights_changed() { frozen_changed_ = true; }
    /// Before forwards and backwards that may be recorded: makes again what is kept of frozen weights, if
    /// these have changed. Collective over tensor parallelism.
    void prepare(Stream stream);

    /// Starts to bring the weights together that a chunk needs first, where they are sharded.
    void gather_ahead(Stream stream, int chunk, bool forward);

    /// Called with each tensor that leaves a layer, and the layer's number: −1 for the embedding, the number
    /// of blocks for the final norm.
    using Watch = std::function<void(int layer, const Tensor& x)>;

    /// Everything but the head.
    void forward(Stream stream, const ChunkRun& run, const ChunkInput& input, const Watch& watch = {});
    /// What the last forward made, to send to the next stage: `to` is [held,H]. Before anything else is
    /// computed.
    void put_output(Stream stream, const Tensor& to) const;
    /// The experts' balance loss of the micro-batch, from routing_sums() of all stages, and its gradient,
    /// which is multiplied by `scale`. Collective over the replicas. Does nothing without such a loss.
    void balance_experts(Stream stream, double scale);

    /// Adds the micro-batch's gradients of loss_scale · Σ loss + balance loss to the store.
    void backward(Stream stream, const ChunkRun& run, const ChunkBackward& settings);
    /// The gradient of the chunk's input after a backward of it, [held,H], until something else is computed.
    Tensor input_gradient(const ChunkRun& run) const;

    /// Fills loss() and argmax() without gradients, right after a forward.
    void evaluate_loss(Stream stream, const ChunkRun& run, const Watch& watch = {});

    /// Per token of the last micro-batch: cross-entropy ([N] f32, 0 where there is no target) and, after
    /// evaluate_loss(), the likeliest next token ([N] i32, anything where there is no target).
    Tensor loss() const { return head_.loss; }
    Tensor argmax() const { return head_.argmax; }
    /// Per token of the last micro-batch, 0 where there is no target: the entropy of the prediction, in nats,
    /// and, after a backward, 1 where the target was the likeliest token ([N] f32). Absent unless predictions
    /// are counted.
    Tensor entropy() const { return head_.entropy; }
    Tensor correct() const { return head_.correct; }

    bool has_balance_loss() const { return config_.has_experts() && config_.moe.balance_loss; }
    /// How often experts were chosen, and their probabilities, summed over tokens and blocks: [(k + 1)·E]
    /// f64; absent without a balance loss.
    Tensor routing_sums() const { return routing_sums_; }
    void clear_routing_sums(Stream stream);
    /// The balance loss of the last micro-batch, over all replicas and times its coefficient: [1] f64; absent
    /// without one.
    Tensor balance_loss() const { return balance_loss_; }
    /// The gradient of the balance loss that the next backward uses, or the last one has used: [E] f32.
    Tensor balance() const { return balance_; }

    BatchBuffers& batch_buffers() { return batch_buffers_; }
    const ModelConfig& config() const { return config_; }
    const Stage& stage() const { return stage_; }
    /// The tokens of a micro-batch that this rank holds between blocks.
    std::int64_t held_tokens(std::int64_t tokens) const { return parallel_.held_tokens(tokens); }

  private:
    struct Pass;

    /// The vocabulary rows that this rank holds.
    Range vocabulary() const;
    std::vector<KeptBlock> kept_blocks() const;
    /// [block]: memory of gradients that is in use only after the block's backward; empty: of none.
    std::vector<std::vector<Tensor>> gradients_after_blocks() const;
    AdapterSettings adapter_settings() const;
    /// The adapter of one of this stage's leaves; nullptr: it has none.
    const AdaptedWeight* adapter_of(std::string_view leaf) const;
    HeadBuffers::Sizes head_sizes() const;
    bool unit_is_trained(int unit) const;
    /// Where backward through a chunk ends: at the first block with something to train, unless a gradient is
    /// needed below it. The number of blocks if there is none.
    int last_block_backward(const StageChunk& chunk) const;

    const ModelConfig& config_;
    CausalLmOptions options_;
    const Stage& stage_;
    Backend& backend_;
    ParamStore& store_;
    const TensorParallel& parallel_;
    Communicator& replicas_;

    AdapterSettings adapters_;
    bool frozen_changed_ = false;
    BatchBuffers batch_buffers_;
    ActivationBuffers activations_;
    HeadBuffers head_;
    EmbeddingAdapterBuffers embedding_adapter_;
    Tensor dresidual_;     // [held,H]: gradient of the residual stream, passed from block to block
    Tensor rope_cosine_;   // [T,D/2] f32
    Tensor rope_sine_;     // [T,D/2] f32
    Tensor routing_sums_;  // [(k + 1)·E] f64: choices, then probabilities
    Tensor balance_;       // [E] f32
    Tensor balance_loss_;  // [1] f64

    /// The end of the last forward: the stream, and what must still be added to it.
    struct Output {
        Tensor residual, branch;
    };
    Output output_;
};

}  // namespace drover
