#pragma once

#include <map>
#include <span>
#include <string>

#include "core/torch_rng.h"
#include "model/config.h"
#include "parallel/param_store.h"

namespace drover {

/// Weights from scratch, as transformers draws them for a seed: the layers' constructors draw first, then the model's
/// own init draws again, all from one generator. Any part of any leaf can be made alone, so a rank fills only its shards
/// and every mesh gives the same weights.
class HfInit {
  public:
    HfInit(const ModelConfig& config, const ParamSpec& spec, std::uint64_t seed);

    /// The owned part of a leaf, row by row, in fp32.
    void fill(const OwnedLeaf& leaf, std::span<float> out) const;

  private:
    double standard_deviation_;
    std::map<std::string, TorchRng, std::less<>> generators_;  // as they stand before a leaf's own draws
};

}  // namespace drover
