#pragma once

#include "convert/training_checkpoint.h"

namespace drover {

/// The state of an optimizer in one file of torch.save, by the names of weights: optimizer.bin, as FSDP saves
/// a full_state_dict.
class FullOptimizer : public TensorSource {
  public:
    /// Error when it is not such a file.
    explicit FullOptimizer(const std::filesystem::path& file);

    /// "exp_avg/<weight>", "exp_avg_sq/<weight>".
    std::vector<PlannedTensor> states() const;
    /// Error when parameters do not agree.
    OptimizerFacts optimizer() const;

    StridedTensor view(std::size_t item) const override;
    void forget() const override { file_.forget(); }
    std::vector<std::filesystem::path> files() const override { return {file_.path()}; }

  private:
    TorchFile file_;
    std::vector<PickleValue> tensors_;  ///< by item
    std::map<std::string, std::vector<PlannedTensor>> by_kind_;
};

}  // namespace drover
