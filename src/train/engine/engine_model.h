#pragma once

#include <functional>

#include "train/engine/train_engine.h"
#include "train/engine/training_model.h"
#include "train/state/run_facts.h"

namespace drover {

struct CheckpointOptions {
    bool with_optimizer = true;                           ///< false: --save_only_model
    std::uint64_t buffer_bytes = std::uint64_t{1} << 30;  ///< see CheckpointWriter
    std::uint64_t max_shard_bytes = SaveModelOptions{}.max_shard_bytes;
    RunFacts facts{};
};

/// A TrainEngine as the loop's model.
class EngineModel final : public TrainingModel {
  public:
    /// Writes the files that belong beside the weights (tokenizer, …) into the folder that it is given.
    /// Called from another thread while training goes on.
    using AfterSave = std::function<void(const std::filesystem::path&)>;

    /// All must outlive it; the engine's memory is allocated.
    EngineModel(TrainEngine& engine, const ModelConfig& config, Backend& backend, const Mesh& mesh,
                AfterSave after_save = {}, CheckpointOptions checkpoints = {});

    UpdateResult update(std::span<const Batch> micro_batches, double learning_rate) override {
        return engine_.step(micro_batches, learning_rate);
    }
    std::vector<BatchEvaluation> evaluate(const Batch& batch) override;
    void save(const std::filesystem::path& folder) override;
    void load(const std::filesystem::path& folder) override;
    void save_checkpoint(const CheckpointRequest& request) override;
    std::optional<CheckpointOutcome> checkpoint_outcome(bool wait) override { return writer_.poll(wait); }
    /// Waits until this rank writes no more of a checkpoint. Not collective: where the ranks have parted, by
    /// an error, the checkpoint stays unfinished.
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

/// How many parameters a model of this config has.
ParameterCounts count_parameters(const ModelConfig& config);

}  // namespace drover
