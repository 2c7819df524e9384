#pragma once

#include <map>
#include <optional>

#include "io/hf_optimizer_state.h"
#include "model/optimizer_order.h"
#include "train/checkpoint/optimizer_source.h"

/// Checkpoints that Hugging Face's Trainer saved.
namespace drover {

/// Whether the folder is one: an optimizer.pt and a trainer_state.json, and nothing of ours.
bool is_hf_checkpoint(const std::filesystem::path& folder);

/// Why it cannot be gone on from ("optimizer.pt is damaged"); nothing when all that is needed can be read.
/// The Trainer keeps no checksums of weights, so damage inside them is not seen.
std::optional<std::string> find_hf_damage(const std::filesystem::path& folder);

/// optimizer.pt: its parameters by the leaves that they are made of.
class HfOptimizerSource final : public OptimizerSource {
  public:
    /// Error when the file has not as many parameters as the model, or is damaged.
    HfOptimizerSource(const std::filesystem::path& checkpoint, const ModelConfig& config,
                      const HfCompat& compat);

    Tensor find(const std::string& kind, const std::string& leaf) const override;
    std::string text() const override { return state_.path().string(); }
    /// Updates that the optimizer has made.
    std::int64_t updates() const;

  private:
    /// Where a leaf is in the tensors of a parameter: several are rows of one that the Trainer has fused.
    struct Place {
        std::size_t parameter = 0;
        Shape shape;
        std::int64_t first_row = 0;     ///< among the rows of all leaves of the parameter
        std::int64_t first_column = 0;  ///< among the columns of all its matrices
    };

    HfOptimizerState state_;
    std::map<std::string, Place> places_;
};

}  // namespace drover
