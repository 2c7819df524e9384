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
/// rows. The plan is made before the data is known, so there is room for a target at every token. Where there
/// are few (TargetRows), only their rows are computed, in the memory of dnormed and normed.
struct HeadBuffers {
    Tensor residual;                    ///< [held,H], the final residual stream
    Tensor rstd;                        ///< [held] f32
    Tensor normed;                      ///< [held,H]; target rows leave their gradient here
    Tensor gathered;                    ///< [N,H], when tokens are split; likewise
    Tensor dnormed;                     ///< [N,H]; holds the target rows of normed until the end
    Tensor held_dnormed;                ///< [held,H], when tokens are split
    Tensor logits;                      ///< [chunk,V]
    Tensor max, sum_exp, target_logit;  ///< [chunk] f32
    Tensor local_max;                   ///< [chunk] f32, when the vocabulary is spread over ranks
    Tensor logit_sum;                   ///< [chunk] f32, with label smoothing
    Tensor weighted_sum;                ///< [chunk] f32, if predictions are counted
    Tensor adapted, dadapted;           ///< [chunk,r], with an adapter: its t and the gradient of that
    Tensor dropped;                     ///< [chunk,H], with an adapter that has dropout: what it leaves
    Tensor row_loss;                    ///< [N] f32, of target rows
    Tensor row_argmax;                  ///< [N] i32, likewise
    Tensor row_entropy, row_correct;    ///< [N] f32, likewise, if predictions are counted
    Tensor loss;                        ///< [N] f32, kept until the micro-batch is done
    Tensor argmax;                      ///< [N] i32, likewise
    Tensor entropy, correct;            ///< [N] f32, likewise, if predictions are counted

    /// What the head is made for.
    struct Sizes {
        std::int64_t vocab_size = 0;
        bool label_smoothing = false;
        bool counts_predictions = false;
        std::int64_t rank = 0;  ///< of its adapter; 0: none
        bool adapter_drops = false;
    };
    /// What is needed after the head has run.
    void plan_results(Arena& arena, const BlockShape& largest, const Sizes& sizes);
    /// Everything else; only the head uses it.
    void plan_scratch(Arena& arena, const BlockShape& largest, const Precision& precision,
                      const TensorParallel& parallel, const Sizes& sizes);

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
    float adapter_scale = 1;
    double adapter_dropout = 0;
};

/// The vocabulary projection y = x · weightᵀ + scale · (x · Aᵀ) · Bᵀ, or gradients of it.
struct Projection {
    Tensor weight{};  ///< [V,H]; of gradients, absent: frozen
    Tensor a{}, b{};  ///< [r,H] and [V,r]; absent: no adapter
};

/// Final norm, vocabulary projection and cross-entropy of one micro-batch.
class Head {
  public:
    Head(Runner run, const TensorParallel& parallel, const DeviceBatch& batch, const HeadBuffers& buffers,
         const HeadSettings& settings)
        : run_(run), parallel_(parallel), batch_(batch), b_(buffers), settings_(settings) {}

    /// Residual stream [held,H] plus the branch still to be added → buffers.residual and normed.
    void norm(const Tensor& norm_weight, const Tensor& stream, const Tensor& branch) const;

    /// Fills loss and, for tokens with a target, argmax from normed, without gradients.
    void evaluate(const Projection& weights) const;

    /// Fills loss and, if predictions are counted, entropy and correct; writes the gradients of loss_scale ·
    /// Σ loss with respect to the trained weights, and leaves that with respect to normed in dnormed. May
    /// overwrite normed. `loss_scale` is [1] f32 on the device.
    void loss_and_gradient(const Projection& weights, const Projection& gradients, bool accumulate,
                           const Tensor& loss_scale) const;

    /// dnormed → dresidual [held,H] and the norm weight's gradient.
    void norm_backward(const Tensor& norm_weight, const Tensor& dnorm_weight, bool accumulate,
                       const Tensor& dresidual) const;

  private:
    /// What the vocabulary projection works on: all R = N tokens, or the R target rows.
    struct Rows {
        Tensor normed;            ///< [R,H]
        Tensor targets;           ///< [R] i32
        Tensor dnormed;           ///< [R,H]
        Tensor loss;              ///< [R] f32
        Tensor argmax;            ///< [R] i32
        Tensor entropy, correct;  ///< [R] f32, if predictions are counted
        Tensor tokens{};          ///< [R] i32: their numbers; absent: all tokens
    };
    Rows rows_with_targets() const;
    /// y [N,…] = the row x [R,…] of every token, zeros for one without. Does nothing if all tokens are rows.
    void to_tokens(const Tensor& x, const Tensor& y) const;

    /// Computes one chunk's logits and losses; with a scale, leaves the gradient in the returned logits.
    Tensor chunk_loss(const Rows& all, const Projection& weights, std::int64_t begin, std::int64_t rows,
                      const Tensor& loss_scale) const;
    /// The gradients of one chunk, from that of its logits.
    void chunk_gradients(const Rows& all, const Projection& weights, const Projection& gradients,
                         bool accumulate, std::int64_t begin, const Tensor& dlogits) const;
    bool adapter_drops() const { return settings_.adapter_dropout > 0 && batch_.noise.has_value(); }
    /// Dropout before the adapter: elements of x, the rows from `begin` on, into y, which may be x.
    void drop(const Rows& all, std::int64_t begin, const Tensor& x, const Tensor& y) const;

    /// Statistics of this rank's part of the vocabulary → of all of it.
    void reduce_statistics(const Tensor& local_max, const CrossEntropyStatistics& statistics) const;

    Runner run_;
    const TensorParallel& parallel_;
    const DeviceBatch& batch_;
    const HeadBuffers& b_;
    HeadSettings settings_;
};

}  // namespace drover
