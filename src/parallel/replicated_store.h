#pragma once

#include <optional>

#include "parallel/param_store.h"

namespace drover {

/// Everything whole on every rank of the data axes; gradients are summed over them when the step's last
/// micro-batch has passed a unit, while backward continues. Also the store of a single process.
class ReplicatedStore final : public ParamStore {
  public:
    /// Without a gradient dtype there are no gradients: for inference.
    ReplicatedStore(ParamSpec spec, const Mesh& mesh, bool tokens_are_split, DType param_dtype,
                    std::optional<DType> gradient_dtype);

    const ParamSpec& spec() const override { return spec_; }
    void plan(Arena& arena) override;

    void gather(Stream, int) override {}
    UnitTensors get(Stream, int unit) override { return weights_[static_cast<std::size_t>(unit)]; }
    void release(Stream, int) override {}
    void weights_changed(Written) override {}

    void begin_backward(std::span<const int> units, PlaceInStep place) override;
    UnitGradients grad(Stream stream, int unit) override;
    void reduce(Stream stream, int unit) override;
    void finish_gradients(Stream stream) override;

    std::vector<Tensor> gradient_memory(int unit) const override;

    std::span<const OwnedLeaf> owned() const override { return owned_; }

  private:
    ParamSpec spec_;
    const Mesh& mesh_;
    bool tokens_are_split_;
    DType param_dtype_;
    std::optional<DType> gradient_dtype_;
    std::vector<UnitPlacement> placement_;
    std::vector<std::vector<Tensor>> weights_;    // [unit][storage]
    std::vector<std::vector<Tensor>> gradients_;  // [unit][storage]
    std::vector<bool> written_;                   // this step's gradients of the unit have been begun
    bool last_micro_batch_ = true;
    std::vector<Pending> pending_;
    std::vector<OwnedLeaf> owned_;
};

}  // namespace drover
