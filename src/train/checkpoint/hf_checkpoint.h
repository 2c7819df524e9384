#pragma once

#include <map>
#include <optional>

#include "io/hf_optimizer_state.h"
#include "model/optimizer_order.h"
#include "train/checkpoint/optimizer_source.h"

/// Checkpoints that Hugging Face's Trainer saved.
namespace drover {

/// Whether the folder is one: it has an optimizer.pt and a trainer_state.json, and none of our files.
bool is_hf_checkpoint(const std::filesystem::path& folder);

/// Why a run cannot resume from it ("optimizer.pt is damaged"); nothing if everything needed can be read. The
/// Trainer keeps no checksums of weights, so damage inside them goes unnoticed.
std::optional<std::string> find_hf_damage(const std::filesystem::path& folder);

/// optimizer.pt, with its parameters mapped to our leaves.
class HfOptimizerSource final : public OptimizerSource {
  public:
    /// Error if the file's number of parameters differs from that of what is trained, or if it is damaged.
    HfOptimizerSource(const std::filesystem::path& checkpoint, const ModelConfig& config,
                      const HfCompat& compat, const Adapters& adapters);

    Tensor find(const std::string& kind, const std::string& leaf) const override;
    std::string text() const override { return state_.path().string(); }
    /// Number of updates the optimizer has made.
    std::int64_t updates() const;

  private:
    /// Where a leaf is within the tensors of a parameter: the Trainer fuses several leaves into the rows of
    /// one.
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
