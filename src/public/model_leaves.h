#pragma once

#include <memory>
#include <optional>

#include "io/model_folder.h"
#include "public/parts.h"
#include "train/engine/new_weights.h"

namespace drover::v1 {

/// The weights of a model as they are now: trained, in its folder, or new.
class ModelLeaves {
  public:
    /// The parts must outlive this object. Error if the folder lacks a tensor.
    explicit ModelLeaves(const CausalLM::Parts& parts);

    /// In fp32. Collective if the weights are spread over processes.
    std::vector<float> whole(const LeafSpec& leaf) const;
    /// The dtype to save them in.
    DType saved_dtype() const;
    /// Contents of generation_config.json.
    Json generation() const;

  private:
    const CausalLM::Parts& parts_;
    std::shared_ptr<const TrainedWeights> trained_;
    std::optional<ModelWeights> stored_;
    LoadReport names_;  // of the stored ones
    std::optional<NewWeights> new_;
};

}  // namespace drover::v1
