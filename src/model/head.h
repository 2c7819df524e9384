#pragma once

#include "core/precision.h"
#include "core/range.h"
#include "model/block_shape.h"
#include "model/device_batch.h"
#include "model/params.h"
#include "model/runner.h"
#include "parallel/param_store.h"

namespace drover {

/// Buffers of the head and the loss. Full logits never exist: the head works through the tokens in chunks of
/// rows.
struct HeadBuffers {
    Tensor residual;                    ///< [held,H], the final residual stream
    Tensor rstd;                        ///< [held] f32
    Tensor normed;                      ///< [held,H]
    Tensor gathered;                    ///< [N,H], when tokens are split
    Tensor dnormed;                     ///< [N,H]
    Tensor held_dnormed;                ///< [held,H], when tokens are split
    Tensor logits;                      ///< [chunk,V]
    Tensor max, sum_exp, target_logit;  ///< [chunk] f32
    Tensor local_max;                   ///< [chunk] f32, when the vocabulary is spread over ranks
    Tensor logit_sum;                   ///< [chunk] f32, with label smoothing
    Tensor loss;                        ///< [N] f32, kept until the micro-batch is done
    Tensor argmax;                      ///< [N] i32, likewise

    /// loss and argmax, which are needed after the head has run.
    void plan_results(Arena& arena, const BlockShape& largest);
    /// Everything else; only the head uses it.
    void plan_scratch(Arena& arena, const BlockShape& largest, const Precision& precision,
                      std::int64_t vocab_size, const TensorParallel& parallel, bool label_smoothing);

    HeadBuffers prefix(const BlockShape& shape) const;

    /// Rows per chunk, so that a chunk of logits stays around 2^25 elements on a CPU and 2^29 on a GPU.
    static std::int64_t chunk_rows(std::int64_t tokens, std::int64_t vocab, Device device);
};

/// The model's settings that the head needs.
struct HeadSettings {
    std::int64_t vocab_size = 0;
    Range vocabulary;  ///< the rows of the projection that this rank holds
    float norm_eps = 0;
    float label_smoothing = 0;
};

/// Final norm, vocabulary projection and cross-entropy of one micro-batch.
class Head {
  public:
    Head(Runner run, const TensorParallel& parallel, const DeviceBatch& batch, const HeadBuffers& buffers,
         const HeadSettings& settings)
        : run_(run), parallel_(parallel), batch_(batch), b_(buffers), settings_(settings) {}

    /// Residual stream [held,H] plus the branch still to be added → buffers.residual and normed.
    void norm(const Tensor& norm_weight, const Tensor& stream, const Tensor& branch) const;

    /// Fills loss and argmax from normed, without gradients.
    void evaluate(const Tensor& head_weight) const;

    /// Fills loss and argmax, writes the gradient of loss_scale · Σ loss with respect to the head's weight
    /// unless `dhead_weight` is absent, and leaves that with respect to normed in dnormed. `loss_scale` is
    /// [1] f32 on the device.
    void loss_and_gradient(const Tensor& head_weight, const Tensor& dhead_weight, bool accumulate,
                           const Tensor& loss_scale) const;

    /// dnormed → dresidual [held,H] and the norm weight's gradient.
    void norm_backward(const Tensor& norm_weight, const Tensor& dnorm_weight, bool accumulate,
                       const Tensor& dresidual) const;

  private:
    /// Computes one chunk's logits and losses; with a scale, leaves the gradient in the returned logits.
    Tensor chunk_loss(const Tensor& normed, const Tensor& head_weight, std::int64_t begin, std::int64_t rows,
                      const Tensor& loss_scale) const;

    /// Statistics of this rank's part of the vocabulary → of all of it.
    void reduce_statistics(const Tensor& local_max, const CrossEntropyStatistics& statistics) const;

    Runner run_;
    const TensorParallel& parallel_;
    const DeviceBatch& batch_;
    const HeadBuffers& b_;
    HeadSettings settings_;
};

}  // namespace drover
