#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "model/init.h"
#include "model/params.h"

namespace drover {

/// The config as it was before the vocabulary was resized.
ModelConfig before_resize(ModelConfig config);

/// Weights from scratch for a config, without the rows that a resize adds.
class NewWeights {
  public:
    NewWeights(const ModelConfig& config, const HfCompat& compat, std::uint64_t seed, InitKind kind);

    /// The owned part, row by row, in fp32. Not for leaves that a resize makes larger.
    void fill(const OwnedLeaf& leaf, std::span<float> out) const;
    /// A whole leaf, as large as before a resize.
    std::vector<float> whole(std::string_view leaf) const;
    /// Where PyTorch's generator stands when the model is drawn.
    TorchRng generator_after() const { return init_ ? init_->generator_after() : TorchRng(seed_); }

  private:
    ModelConfig config_;
    ParamSpec spec_;
    std::uint64_t seed_;
    std::unique_ptr<HfInit> init_;  // only for that kind: finding where each leaf begins takes time
};

/// Embedding and head with the rows that a resize added; empty when nothing was resized.
class GrownLeaves {
  public:
    /// The owned part of the leaf; false when the leaf was not resized.
    bool fill(const OwnedLeaf& leaf, std::span<float> out) const;

    std::map<std::string, std::vector<float>, std::less<>> leaves;
};

/// `old_rows` gives a whole leaf as it was before the resize. The generator is where PyTorch's would be:
/// transformers constructs each larger layer, which draws, before it draws the added rows. Every rank makes
/// whole leaves, so that all have the same.
GrownLeaves grow_vocabulary(const ModelConfig& config, TorchRng generator,
                            const std::function<std::vector<float>(const LeafSpec&)>& old_rows);

}  // namespace drover
