#pragma once

#include <cstdint>
#include <optional>

#include "core/hf_compat.h"
#include "model/causal_lm_options.h"
#include "model/init_kind.h"
#include "optim/optimizer.h"
#include "parallel/schedule/step_schedule.h"
#include "parallel/store_layout.h"
#include "train/engine/loss_scaling.h"

namespace drover {

/// How a TrainEngine computes its steps.
struct TrainEngineOptions {
    CausalLmOptions model;
    OptimizerSettings optimizer{};
    double max_gradient_norm = 1.0;  ///< ≤ 0: no clipping
    HfCompat compat;
    InitKind init = InitKind::hugging_face;  ///< of randomly drawn weights
    Sharding sharding = Sharding::replicated;
    /// For a mesh with several pipeline ranks, except for the most micro-batches of an update: if that is one,
    /// activations and gradients share memory.
    PipelineSettings pipeline{};
    /// The replicas' micro-batches are parts of one batch, as under SPMD; otherwise each is its own batch.
    /// This matters for older releases, which take the mean over a batch.
    bool shared_batches = false;
    std::uint64_t noise_seed = 42;  ///< for the noise of router_jitter_noise and NEFTune
    bool sequence_parallel =
        false;  ///< between the seams of tensor parallelism, each rank holds its share of the tokens
    /// A step whose loss or gradient norm is not finite leaves weights, optimizer state and step count as
    /// they were.
    bool skip_non_finite = false;
    /// The optimizer's moments and master copies are in host memory that the device can access.
    bool offload_optimizer = false;
    /// Only weights and forward passes: no memory for gradients and optimizer, and no steps.
    bool evaluation_only = false;
    /// Implies skip_non_finite for gradients that overflow.
    std::optional<LossScaling> loss_scaling{};
};

/// Whether the loss is computed from per-batch means, as older releases of transformers do.
bool takes_means_of_batches(const TrainEngineOptions& options);

}  // namespace drover
