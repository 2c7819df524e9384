#pragma once

#include <map>
#include <memory>
#include <vector>

#include "convert/conversion_plan.h"
#include "peft/adapter_weights.h"

namespace drover {

/// A model's weights with adapters merged into them, one after the other. A tensor is merged when it is
/// viewed.
class MergedCheckpoint : public TensorSource {
  public:
    /// Error when an adapter does not fit the model, or a weight it adapts is not there. `separates_head`:
    /// the base's head is its embedding, and the result has a head of its own.
    MergedCheckpoint(std::unique_ptr<TensorSource> base, std::vector<AdapterWeights> adapters,
                     bool separates_head = false);

    /// Items are as in the base, but merged ones are float32.
    StridedTensor view(std::size_t item) const override;
    void verify(std::size_t item) const override { base_->verify(of_base(item)); }
    /// What was merged last is kept, since a large tensor is written in parts.
    void forget() const override;
    std::vector<std::filesystem::path> files() const override;

    /// Its tensors, whole, in the types of the base.
    std::vector<PlannedTensor> tensors() const;
    /// How many are merged.
    std::size_t merged_count() const;

  private:
    /// Whether an adapter changes a tensor.
    bool changes(std::string_view name) const;
    /// The base's item that it starts as.
    std::size_t of_base(std::size_t item) const { return item == new_head_ ? embedding_ : item; }

    std::unique_ptr<TensorSource> base_;
    std::vector<AdapterWeights> adapters_;
    mutable std::map<std::size_t, std::vector<float>> merged_;  ///< by item
    mutable std::size_t last_ = SIZE_MAX;                       ///< item
    std::size_t embedding_ = SIZE_MAX, new_head_ = SIZE_MAX;    ///< items; the head's if it is new
};

}  // namespace drover
