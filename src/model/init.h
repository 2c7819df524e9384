#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "core/hf_compat.h"
#include "core/torch_rng.h"
#include "model/adapters.h"
#include "model/init_kind.h"
#include "parallel/param_store.h"

namespace drover {

struct ModelConfig;

/// The owned part of a leaf as InitKind::counter draws it, row by row, in fp32.
void fill_by_counter(const OwnedLeaf& leaf, std::uint64_t seed, double standard_deviation,
                     std::span<float> out);

/// The first values of adapters, as PEFT draws them for a seed right before get_peft_model: of each adapted
/// module in turn, the constructors of lora_A and lora_B draw, then A is drawn again; B is zero. Of the
/// embedding's adapter it is B that is drawn again, and A that is zero. Any part of any leaf can be made
/// alone.
class AdapterInit {
  public:
    /// `spec` has the adapters' leaves.
    AdapterInit(const Adapters& adapters, const ParamSpec& spec, std::uint64_t seed);

    /// The owned part of an A or a B, row by row, in fp32.
    void fill(const OwnedLeaf& leaf, std::span<float> out) const;

  private:
    std::map<std::string, TorchRng, std::less<>> before_;  ///< by adapted leaf: the generator before A (or B)
};

/// Weights from scratch, as transformers draws them for a seed: the layers' constructors draw first, then the
/// model's own init draws again, all from one generator. Any part of any leaf can be made alone, so a rank
/// fills only its shards and every mesh gives the same weights.
class HfInit {
  public:
    HfInit(const ModelConfig& config, const ParamSpec& spec, std::uint64_t seed);

    /// The owned part of a leaf, row by row, in fp32.
    void fill(const OwnedLeaf& leaf, std::span<float> out) const;
    /// The generator after all draws of the model.
    const TorchRng& generator_after() const { return after_; }

  private:
    /// The draws of one tensor of transformers, of which a leaf may be some rows.
    struct Draws {
        TorchRng generator;      ///< its state before the tensor's own draws
        std::int64_t rows;       ///< of that tensor
        std::int64_t first_row;  ///< of the leaf in it
    };

    double standard_deviation_;
    TorchRng after_{0};
    std::map<std::string, Draws, std::less<>> draws_;
};

}  // namespace drover
