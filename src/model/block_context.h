#pragma once

#include <array>
#include <vector>

#include "model/block_activations.h"
#include "model/device_batch.h"
#include "model/params.h"
#include "model/runner.h"
#include "parallel/param_store.h"

namespace drover {

/// The keys and values of all tokens of the sequences so far, for generation.
struct KeyValueCache {
    std::vector<Tensor> keys, values;  ///< per block, [sequences,capacity,kv_heads,D]
    Tensor sequence_of;                ///< [N] i32: the sequence of each new token
};

/// What a backward computes. Zero bubble computes the gradients of a chunk's weights later than the gradient
/// of its input, for which another rank waits; norms and experts belong to the first part.
enum class BackwardPart : std::uint8_t { whole, input, weights };

/// What the blocks are told of their adapters.
struct AdapterSettings {
    double dropout = 0;
    std::vector<std::array<float, BlockStorage::count>> scales;  ///< [block of the model][storage of a B]

    float scale(int block, BlockStorage::Index b) const { return scales[static_cast<std::size_t>(block)][b]; }
};

/// Shared by the blocks of one micro-batch.
struct BlockContext {
    Runner run;
    const TensorParallel& parallel;
    BlockShape shape;  ///< of this micro-batch
    const DeviceBatch& batch;
    Tensor rope_cosine;  ///< [T,D/2] f32
    Tensor rope_sine;    ///< [T,D/2] f32
    float norm_eps = 0;
    const ModelConfig& config;
    BlockScratch scratch;                       ///< of this micro-batch's size
    const AdapterSettings* adapters = nullptr;  ///< null: the weights have no adapters
    const KeyValueCache* cache = nullptr;       ///< in generation: the past that the micro-batch continues

    // With experts.
    std::int64_t chosen = 0;           ///< k
    Tensor choices, probability_sums;  ///< [k,E] and [E] f64: what the balance loss needs; absent without one
    Tensor balance;                    ///< [E] f32: its gradient, once all blocks have run forward
    float jitter = 0;                  ///< amplitude of the noise on their input, in training

    /// Index of this rank's first held token in the micro-batch.
    std::int64_t first_held() const {
        return parallel.splits_tokens() ? parallel.axis().rank() * shape.held : 0;
    }
    /// Whether the experts' input is noisy in this micro-batch.
    bool jitters() const { return jitter != 0 && batch.noise; }
    /// A bias, or a contribution, that is added to a sum over ranks: only one rank may add it.
    Tensor on_one_rank(const Tensor& bias) const { return is_first_rank() ? bias : Tensor(); }
    /// The gradient of a bias, if it is trained.
    void bias_gradient(const UnitGradients& gradients, const Tensor& dy, BlockStorage::Index bias) const {
        if (const Tensor& dbias = gradients.tensors[bias])
            run(BiasGradient{.dy = dy, .dbias = dbias, .accumulate = gradients.accumulate});
    }
    bool is_first_rank() const { return parallel.axis().rank() == 0; }
};

}  // namespace drover
