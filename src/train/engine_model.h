#pragma once

#include <functional>

#include "train/train_engine.h"
#include "train/training_model.h"

namespace drover {

/// A TrainEngine as the loop's model.
class EngineModel final : public TrainingModel {
  public:
    /// Called with the folder after the weights were saved there, for files beside them (tokenizer, …).
    using AfterSave = std::function<void(const std::filesystem::path&)>;

    /// All must outlive it; the engine's memory is allocated. `seed` draws what a loaded folder lacks.
    EngineModel(TrainEngine& engine, const ModelConfig& config, Backend& backend, const Mesh& mesh,
                std::uint64_t seed, AfterSave after_save = {});

    UpdateOutcome update(std::span<const TokenBatch> micro_batches, double learning_rate) override;
    std::vector<BatchEvaluation> evaluate(const TokenBatch& batch, std::int64_t rows) override;
    void save(const std::filesystem::path& folder) override;
    void load(const std::filesystem::path& folder) override;
    ParameterCounts parameters() const override { return parameters_; }

  private:
    std::vector<double> gather(std::vector<double> own);

    TrainEngine& engine_;
    Backend& backend_;
    const Mesh& mesh_;
    std::uint64_t seed_;
    AfterSave after_save_;
    ParameterCounts parameters_;
};

/// How many parameters a model of this config has.
ParameterCounts count_parameters(const ModelConfig& config);

}  // namespace drover
