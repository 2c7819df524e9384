#pragma once

#include <memory>
#include <optional>
#include <string>

#include "core/precision.h"
#include "model/block_activations.h"
#include "model/config.h"
#include "model/device_batch.h"
#include "model/head.h"

namespace drover {

/// Whether the next unit's weights are requested while one computes, or only when they are needed. Without
/// sharded weights it makes no difference.
struct GatherAhead {
    bool forward = true;
    bool backward = true;
};

/// The largest micro-batch that a model must hold, and how it trades memory for time.
struct CausalLmOptions {
    Precision precision;
    RecomputePolicy recompute;
    MoeMode moe_mode = MoeMode::grouped;
    std::int64_t rows = 1;        ///< of the largest micro-batch
    std::int64_t row_length = 1;  ///< of the longest row
    double label_smoothing = 0;  ///< ε: targets are (1 − ε) · one-hot + ε / V, in training and in evaluation
    std::optional<DType> rope_rounding{};  ///< of the cosines and sines; absent: as the residual stream
    double neftune_alpha = 0;  ///< training adds U(−m, m) to the embeddings, m = alpha / √(row length · H)
    GatherAhead gather_ahead{};
};

/// A causal language model: embedding → blocks → head and loss, and back. Weights and gradients are reached
/// only through the store; the same code runs for every sharding of it.
class CausalLm {
  public:
    /// All references must outlive the model. `replicas` are the ranks that process other tokens with the
    /// same weights.
    CausalLm(const ModelConfig& config, const CausalLmOptions& options, Backend& backend, ParamStore& store,
             const TensorParallel& parallel, Communicator& replicas);

    /// Allocates the activations from the arena; called once against a measuring arena and once against a
    /// real one.
    void plan(Arena& arena);
    /// Fills the constant tables; once, after the real plan.
    void initialize(Stream stream);

    /// Adds this micro-batch's gradients of loss_scale · Σ loss + balance_scale · balance loss to the store.
    /// `loss_scale` is [1] f32 on the device.
    void forward_backward(Stream stream, const DeviceBatch& batch, const Tensor& loss_scale,
                          double balance_scale = 1);
    /// Forward only. A batch may come in pieces; the last one computes the balance loss of all.
    void evaluate(Stream stream, const DeviceBatch& batch, bool first_piece = true, bool last_piece = true);
    /// Forward only: the first place where a number is not finite ("the output of layer 3"); empty when all
    /// logits are finite. Collective; every rank returns the same answer. `sums` is [1] f64 of scratch.
    std::string find_non_finite(Stream stream, const DeviceBatch& batch, Communicator& everyone,
                                const Tensor& sums);

    /// Per token of the last micro-batch: cross-entropy ([N] f32, 0 where there is no target) and the
    /// likeliest token
    /// ([N] i32).
    Tensor loss() const { return head_.loss; }
    Tensor argmax() const { return head_.argmax; }

    /// The experts' balance loss of the last micro-batch, over all replicas and times its coefficient ([1]
    /// f64); absent unless the config requests it.
    Tensor balance_loss() const { return balance_loss_; }

    BatchBuffers& batch_buffers() { return batch_buffers_; }
    const ModelConfig& config() const { return config_; }

  private:
    struct Pass;

    /// The vocabulary rows that this rank holds.
    Range vocabulary() const;
    bool has_balance_loss() const { return config_.has_experts() && config_.moe.balance_loss; }

    const ModelConfig& config_;
    CausalLmOptions options_;
    Backend& backend_;
    ParamStore& store_;
    const TensorParallel& parallel_;
    Communicator& replicas_;

    BatchBuffers batch_buffers_;
    ActivationBuffers activations_;
    HeadBuffers head_;
    Tensor dresidual_;         // [held,H]: gradient of the residual stream, passed from block to block
    Tensor rope_cosine_;       // [T,D/2] f32
    Tensor rope_sine_;         // [T,D/2] f32
    Tensor choices_;           // [k,E] f64: how often each expert was a token's j-th choice, over all blocks
    Tensor probability_sums_;  // [E] f64
    Tensor balance_;           // [E] f32
    Tensor balance_loss_;      // [1] f64
};

}  // namespace drover
