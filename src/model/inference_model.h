#pragma once

#include <memory>
#include <span>
#include <vector>

#include "model/block_context.h"
#include "model/config.h"
#include "parallel/mesh.h"
#include "parallel/replicated_store.h"

namespace drover {

struct InferenceOptions {
    DType dtype = DType::f32;     ///< of weights, activations and cache: f32 or bf16
    std::int64_t sequences = 1;   ///< that grow side by side
    std::int64_t capacity = 1;    ///< positions of each
    std::int64_t new_tokens = 1;  ///< largest number that go through the model at once
    std::int64_t logits = 1;      ///< largest number of tokens whose logits are requested at once
};

/// A token that continues a sequence.
struct NewToken {
    std::int32_t id = 0;
    std::int32_t sequence = 0;
    std::int32_t position = 0;
};

/// A causal language model for generation on one rank: weights, a cache of keys and values, and buffers for
/// some new tokens, in one arena. No gradients.
class InferenceModel {
  public:
    /// Plans, but allocates nothing yet. The backend must outlive the model.
    InferenceModel(const ModelConfig& config, const InferenceOptions& options, Backend& backend);

    InferenceModel(const InferenceModel&) = delete;  // its parts refer to each other
    InferenceModel& operator=(const InferenceModel&) = delete;

    const MemoryPlan& memory_plan() const { return memory_plan_; }
    void allocate();
    /// The weights to fill before the first forward().
    std::span<const OwnedLeaf> weights() const { return store_.owned(); }

    /// Runs the tokens through the model and keeps their keys and values in the cache. The positions of a
    /// sequence must come without gaps; a repeated position replaces the old one, which is how a sequence
    /// restarts or goes back. Returns the logits [count,V] f32, on the device, of the last `count` of them,
    /// valid until the next call.
    Tensor forward(Stream stream, std::span<const NewToken> tokens, std::int64_t count);
    /// The same on the host.
    std::vector<float> logits(Stream stream, std::span<const NewToken> tokens, std::int64_t count);

    const ModelConfig& config() const { return config_; }
    const InferenceOptions& options() const { return options_; }

  private:
    void plan(Arena& arena);
    void upload(Stream stream, std::span<const NewToken> tokens);

    ModelConfig config_;
    InferenceOptions options_;
    Backend& backend_;
    Mesh mesh_;
    TensorParallel parallel_;
    ReplicatedStore store_;
    MemoryPlan memory_plan_;
    std::unique_ptr<Arena> arena_;

    Tensor ids_, positions_, sequence_of_;  // [new_tokens] i32
    Tensor rope_cosine_, rope_sine_;        // [capacity,D/2] f32
    KeyValueCache cache_;
    ActivationBuffers activations_;  // of one block: all use the same
    Tensor final_residual_;          // [logits,H]
    Tensor final_rstd_;              // [logits] f32
    Tensor final_normed_;            // [logits,H]
    Tensor logits_, logits_f32_;     // [logits,V]; the second only when the first are not fp32
};

}  // namespace drover
