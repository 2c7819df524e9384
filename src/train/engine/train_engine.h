#pragma once

#include <array>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "io/model_folder.h"
#include "model/causal_lm.h"
#include "model/config.h"
#include "optim/gradient_norm.h"
#include "optim/optimizer.h"
#include "train/checkpoint/checkpoint_tensors.h"
#include "train/checkpoint/optimizer_source.h"
#include "train/engine/loss_scaler.h"
#include "train/engine/step_executor.h"
#include "train/engine/step_readback.h"
#include "train/engine/train_engine_options.h"
#include "train/engine/training_model.h"

namespace drover {

class WeightUpload;

/// A sample of a model's weights, in the dtype used for computation.
struct WeightSample {
    std::string leaf;
    std::vector<float> values;
};

/// Sums over the targets of a rank's evaluated batch. Hugging Face's eval_loss is the mean of all ranks'
/// batch_loss() weighted by rows, its accuracy the sum of `correct` over that of `targets`.
struct EvaluationResult {
    double loss_sum = 0;
    std::int64_t targets = 0;
    std::int64_t correct = 0;  ///< targets that were the likeliest token
    double entropy = 0;        ///< sum over the targets; 0 unless predictions are counted
    /// The divisor of the loss: the mean number of targets (or labels, where older releases count those) over
    /// the replicas that have any. If these replicas have equally many rows, the mean of their losses is the
    /// true overall mean.
    double denominator = 0;
    double balance_loss =
        0;  ///< of the experts, over all replicas, times its coefficient; 0 when it is not part of the loss

    double mean_loss() const { return denominator == 0 ? 0 : loss_sum / denominator; }
    double batch_loss() const { return mean_loss() + balance_loss; }
};

/// Everything one rank needs to turn batches into updates: weights, gradients, optimizer and activations, in
/// one arena whose size is known before it is allocated.
class TrainEngine {
  public:
    /// Plans, but allocates nothing yet. Backend and mesh must outlive the engine. Ranks along the mesh's
    /// data axes see different micro-batches, the same number everywhere; ranks along its tp axis see the
    /// same ones.
    TrainEngine(const ModelConfig& config, const TrainEngineOptions& options, Backend& backend,
                const Mesh& mesh);
    ~TrainEngine();

    /// Device bytes by use; exactly what allocate() takes.
    const MemoryPlan& memory_plan() const { return memory_plan_; }
    /// Host memory used in addition; empty unless the optimizer is offloaded.
    const MemoryPlan& host_memory_plan() const { return host_memory_plan_; }
    /// Allocates the memory. Weights and optimizer state are then zero.
    void allocate();

    /// At most `most` weights of a matrix of which this rank owns a part. Waits for the device; not
    /// collective.
    WeightSample sample_weights(std::int64_t most) const;

    /// Draws the model's own weights; with Hugging Face's kind of init, as it does for `seed`. This and the
    /// next two do not touch adapters.
    void initialize_weights(std::uint64_t seed);
    /// Reads a model folder or a .safetensors file, converting to the parameters' dtype. Missing tensors are
    /// drawn from `seed`, as Hugging Face does, and named in the report; Error when shapes differ.
    LoadReport load_weights(const std::filesystem::path& path, std::uint64_t seed);
    /// Takes the weights that `whole_leaf` returns; it is called for every leaf on every rank in the same
    /// order. If the vocabulary is to be resized, it is larger than that of the weights.
    void take_weights(const std::function<std::vector<float>(const LeafSpec&)>& whole_leaf,
                      std::uint64_t seed);
    /// Loads the weights of a model that was trained here: they already include a larger vocabulary.
    /// With adapters, only what is trained, from the checkpoint's adapter_model.safetensors. Error when a
    /// tensor is missing.
    void load_trained_weights(const std::filesystem::path& checkpoint);
    /// Gives the adapters their first values, as PEFT does for `seed`. The model's own weights are there.
    void initialize_adapters(std::uint64_t seed);
    /// Takes what is trained, adapters and leaves that are trained whole, from `whole_leaf`: it returns a
    /// leaf's tensor on the host, of any floating dtype. Error when one is absent or has another shape.
    void load_adapters(const std::function<Tensor(const LeafSpec&)>& whole_leaf);
    /// The same from an adapter_model.safetensors, of this program or of PEFT.
    void load_adapters(const std::filesystem::path& file);
    /// Takes the optimizer's state from a source that has all of it (Error if not), converting to the dtypes
    /// in use. Every rank reads its parts, regardless of which ranks wrote them.
    void load_optimizer(const OptimizerSource& source);
    /// The counters that belong to the weights and the optimizer.
    EngineState counters() const;
    void set_counters(const EngineState& state);
    /// config.json of a saved model, keyed by file name; none with adapters.
    std::map<std::string, std::string> saved_config_texts() const;
    /// This rank's tensors in a checkpoint: the model's weights, or, with adapters, an
    /// adapter_model.safetensors with what is trained.
    TensorFiles saved_tensors(bool with_optimizer, std::uint64_t max_shard_bytes) const;

    /// One update from the micro-batches of an optimizer step.
    UpdateResult step(std::span<const Batch> micro_batches, double learning_rate);
    /// The gradients of the micro-batches, without an update.
    UpdateResult accumulate_gradients(std::span<const Batch> micro_batches);
    /// Without gradients. The batch may have more rows than in training; it is processed in pieces that fit,
    /// and all ranks must have the same number of pieces. Rows may not be longer than planned.
    EvaluationResult evaluate(const Batch& batch);

    /// The dtype of saved weights.
    DType saved_dtype() const {
        return options_.model.precision.master ? DType::f32 : options_.model.precision.parameters;
    }

    /// Whether only adapters, and leaves named with them, are trained.
    bool has_adapters() const { return adapters().any(); }
    const Adapters& adapters() const { return options_.model.adapters; }
    const HfCompat& compat() const { return options_.compat; }
    const ParamStore& store() const { return *store_; }
    /// All parameters of the model, of which a pipeline rank has some.
    const ParamSpec& model_spec() const { return model_spec_; }
    const Recorder& recorder() const { return executor_.recorder(); }
    const Optimizer& optimizer() const { return *optimizer_; }
    std::int64_t updates_done() const { return updates_done_; }
    const PipelinePlan& pipeline() const { return pipeline_; }
    /// The computations of the following steps are logged there; null: no longer.
    void observe_actions(ActionLog* log) { executor_.observe(log); }
    /// Absent unless asked for.
    const std::optional<LossScaler>& loss_scaler() const { return loss_scaler_; }

  private:
    void plan(Arena& arena, Arena& state);
    Tensor master_of(std::size_t index) const;  ///< absent if there is none
    void write_leaf(WeightUpload& upload, std::size_t index, std::span<const float> values);
    void initialize_magnitudes();
    void all_weights_changed();
    LoadReport load_weights_of(const ModelConfig& config, const std::filesystem::path& path,
                               std::uint64_t seed);
    void upload_scalars();
    void enqueue_gradients(std::span<const Batch> micro_batches);
    UpdateResult read_gradients();
    void update_weights();
    double gradient_scale() const { return loss_scaler_ ? static_cast<double>(loss_scaler_->scale()) : 1.0; }
    std::vector<double> leaf_sums() const;
    std::string find_non_finite(std::span<const Batch> micro_batches);
    std::string find_non_finite(const Batch& batch, std::optional<TokenNoise> noise);
    /// Sums over the targets of evaluated micro-batches.
    enum Evaluated : std::size_t { loss_of_targets, correct_targets, entropy_of_targets, evaluated_sums };
    void add_evaluation(const Batch& batch, std::array<double, evaluated_sums>& sums);
    std::vector<double> prediction_scales(std::span<const Batch> micro_batches);
    void add_predictions(const Batch& batch, double scale, bool first);
    std::vector<TensorFiles::Item> optimizer_items() const;
    double loss_scale(const Batch& batch, std::span<const Batch> micro_batches, std::int64_t step_count);
    std::int64_t step_count(std::span<const Batch> micro_batches);
    std::int64_t sum_over_replicas(std::int64_t count);
    void add_up_tied_gradients();
    void add_loss(const Batch& batch, double scale, const Tensor& balance_loss, double balance_scale,
                  bool first);
    bool is_recorded(const DeviceBatch& micro) const;
    double balance_scale(std::size_t micro_batches) const;
    bool has_noise() const {
        return config_.moe.jitter > 0 || options_.model.neftune_alpha > 0 ||
               options_.model.adapters.dropout > 0;
    }
    std::optional<TokenNoise> noise_of(const Batch& batch, std::size_t micro_batch);

    TrainEngineOptions options_;
    ModelConfig config_;
    Backend& backend_;
    Stream stream_;
    const Mesh& mesh_;
    TensorParallel parallel_;
    ParamSpec model_spec_;
    PipelinePlan pipeline_;
    Stage stage_;
    std::unique_ptr<ParamStore> store_;
    std::unique_ptr<Optimizer> optimizer_;
    GradientNorm gradient_norm_;
    CausalLm model_;
    StepExecutor executor_;

    MemoryPlan memory_plan_, host_memory_plan_;
    std::unique_ptr<Arena> arena_, state_arena_;  // the second only when the optimizer is offloaded
    Tensor scalars_;                              // [StepScalar::count] f32
    Tensor step_sums_;  // [1] f64, or, if predictions are counted, [StepSum::count]; over all ranks
    Tensor loss_sum_;   // [1] f64: the first of them
    StepReadback readback_;
    std::vector<float> host_scalars_;
    std::int64_t parameter_count_;
    std::int64_t updates_done_ = 0;
    std::optional<LossScaler> loss_scaler_;
};

}  // namespace drover
