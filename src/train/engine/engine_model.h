#pragma once

#include <functional>

#include "io/model_folder.h"
#include "train/engine/training_model.h"
#include "train/state/run_facts.h"

namespace drover {

class TrainEngine;
struct ModelConfig;

struct CheckpointOptions {
    /// Turns a checkpoint's files, complete but for drover_state.json, into another program's checkpoint.
    /// Called from another thread while training continues.
    using Rewrite =
        std::function<void(const std::filesystem::path& folder, const LoopState&, const EngineState&)>;

    bool with_optimizer = true;                           ///< false: --save_only_model
    std::uint64_t buffer_bytes = std::uint64_t{1} << 30;  ///< see CheckpointWriter
    std::uint64_t max_shard_bytes = SaveModelOptions{}.max_shard_bytes;
    RunFacts facts{};
    Rewrite rewrite{};
};

/// Adapts a TrainEngine to the loop's TrainingModel.
class EngineModel final : public TrainingModel {
  public:
    /// Writes the files that accompany the weights (tokenizer, …) into the given folder. Called from another
    /// thread while training continues.
    using AfterSave = std::function<void(const std::filesystem::path&)>;

    /// All arguments must outlive this object; the engine's memory is already allocated.
    EngineModel(TrainEngine& engine, const ModelConfig& config, Backend& backend, const Mesh& mesh,
                AfterSave after_save = {}, CheckpointOptions checkpoints = {});

    UpdateResult update(std::span<const Batch> micro_batches, double learning_rate) override;
    std::vector<BatchEvaluation> evaluate(const Batch& batch) override;
    void save(const std::filesystem::path& folder) override;
    void load(const std::filesystem::path& folder) override;
    void save_checkpoint(const CheckpointRequest& request) override;
    std::optional<CheckpointOutcome> checkpoint_outcome(bool wait) override { return writer_.poll(wait); }
    /// Waits until this rank has finished its part of writing a checkpoint. Not collective: if an error on
    /// one rank has separated the ranks, the checkpoint stays unfinished.
    void finish_writing() { writer_.finish_writing(); }
    /// Takes weights, optimizer state and counters from a complete checkpoint of ours (find_damage), or of
    /// Hugging Face's Trainer, which has no state of the loop.
    std::optional<LoopState> resume(const std::filesystem::path& folder);
    ParameterCounts parameters() const override { return parameters_; }

  private:
    std::vector<double> gather(std::vector<double> own);
    bool anyone_has_filler(const Batch& batch);

    TrainEngine& engine_;
    const ModelConfig& config_;
    const Mesh& mesh_;
    AfterSave after_save_;
    CheckpointOptions checkpoints_;
    ParameterCounts parameters_;
    CheckpointWriter writer_;
};

/// The number of parameters of a model with this config.
ParameterCounts count_parameters(const ModelConfig& config);

}  // namespace drover
