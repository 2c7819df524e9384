#pragma once

#include "convert/nxd_plan.h"
#include "convert/training_checkpoint.h"

namespace drover {

/// The optimizer of a checkpoint of neuronx-distributed: step_N/optim has a file for each tensor and pipeline
/// rank, and with ZeRO-1 for each data rank, which then has its share of the rows of every tensor. Parameters
/// are numbered; their names are those of the model's files.
class NxdOptimizer : public RankFiles {
  public:
    /// Whether the folder step_N has one.
    static bool is_one(const std::filesystem::path& step_folder);
    /// Error when ranks are missing, or parameters do not fit the model.
    NxdOptimizer(const std::filesystem::path& step_folder, const ShardedCheckpoint& model);
    ~NxdOptimizer() override;

    static constexpr const char* master = "master";

    /// What there is of every parameter: "exp_avg", "exp_avg_sq", and `master` for copies of the weights in
    /// the optimizer's precision.
    std::vector<std::string> kinds() const;
    /// The tensors of a kind for the full model, under its names. `settings.order` must be right.
    std::vector<PlannedTensor> tensors(const std::string& kind, const NxdSettings& settings) const;
    const OptimizerFacts& optimizer() const { return facts_; }

  private:
    struct Kind;

    void read_rank(const ShardRank& rank, const std::vector<std::filesystem::path>& files,
                   const ShardedCheckpoint& model, CommonStep& step);
    Kind& kind(const std::string& name);
    PlannedTensor with_rows_of_ranks(const Kind& kind, const PlannedTensor& joined) const;

    std::filesystem::path folder_;
    ShardSizes sizes_;
    std::map<std::string, std::unique_ptr<Kind>> kinds_;
    OptimizerFacts facts_;
};

/// The model and the optimizer of such a checkpoint; the sizes are checked if they are given.
TrainingCheckpoint open_nxd_training(const std::filesystem::path& step_folder, std::string_view model_key,
                                     const NxdSettings& settings, std::optional<std::int64_t> tensor,
                                     std::optional<std::int64_t> pipeline);

}  // namespace drover
