#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "model/config.h"
#include "model/init.h"
#include "model/params.h"

namespace drover {

/// The config as it was before the vocabulary was resized.
ModelConfig before_resize(ModelConfig config);

/// Freshly initialized weights for a config, without the rows that a resize adds.
class NewWeights {
  public:
    NewWeights(const ModelConfig& config, const HfCompat& compat, std::uint64_t seed, InitKind kind);

    /// The owned part, row by row, in fp32. Not for leaves that a resize enlarges.
    void fill(const OwnedLeaf& leaf, std::span<float> out) const;
    /// A whole leaf, at its size before a resize.
    std::vector<float> whole(std::string_view leaf) const;
    /// The state of PyTorch's generator after the model is drawn.
    TorchRng generator_after() const { return init_ ? init_->generator_after() : TorchRng(seed_); }

  private:
    ModelConfig config_;
    ParamSpec spec_;
    std::uint64_t seed_;
    std::unique_ptr<HfInit> init_;  // only for that kind: finding each leaf's start takes time
};

/// Embedding and head with the rows that a resize added; empty when nothing was resized.
class GrownLeaves {
  public:
    /// The owned part of the leaf; false when the leaf was not resized.
    bool fill(const OwnedLeaf& leaf, std::span<float> out) const;

    std::map<std::string, std::vector<float>, std::less<>> leaves;
};

/// `old_rows` returns a whole leaf as it was before the resize. The generator is in the state PyTorch's would
/// be in: transformers constructs each larger layer, which draws, before it draws the added rows. Every rank
/// makes whole leaves, so that all have the same values.
GrownLeaves grow_vocabulary(const ModelConfig& config, TorchRng generator,
                            const std::function<std::vector<float>(const LeafSpec&)>& old_rows);

}  // namespace drover
