#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/tensor.h"
#include "model/adapters.h"
#include "peft/peft_config.h"

namespace drover {

struct ModelConfig;

/// A module of transformers' model. Experts are modules of their own, as in its releases 4.x.
struct ModelModule {
    enum class Kind : std::uint8_t { linear, embedding, norm, container };

    std::string name;  ///< "model.layers.0.self_attn.q_proj"
    Kind kind = Kind::container;
    bool is_head = false;  ///< the output head, also where it is the embedding under another name
};

/// All modules that have weights, and those that hold them, in PyTorch's order.
std::vector<ModelModule> modules_of(const ModelConfig& config);

/// One adapter for all experts of a block, as PEFT has it for the fused weights of transformers 5.x. Expert
/// e's change of its fused weight is scale·B_e·A_e, where A_e are `rank` rows of A [E·rank,in], and B_e every
/// E-th column of B [out,rank·E], from e on.
struct FusedExpertsAdapter {
    enum class Weight : std::uint8_t { gate_up /*[2I,H]*/, down /*[H,I]*/ };

    std::string module;  ///< "model.layers.0.mlp.experts"
    std::string leaves;  ///< what the experts' leaves begin with: "model.layers.0.block_sparse_moe.experts."
    Weight weight = Weight::gate_up;
    std::int64_t rank = 0;
    double scale = 1;
};

/// What an adapter changes of a model.
struct ResolvedAdapter {
    Adapters adapters;
    std::vector<FusedExpertsAdapter> fused;
    /// Endings of the adapted modules' names, for a file: q_proj, v_proj.
    std::vector<std::string> target_names;
    /// The configuration leaves them to PEFT ("all-linear", or nothing), which saves the names it found.
    bool is_shorthand = false;
};

/// Finds the modules as PEFT does. `where` names the configuration in errors: when nothing matches (with the
/// names of the modules there are), or a module of another kind than linear layers and embeddings is to be
/// adapted.
ResolvedAdapter resolve_adapter(const PeftConfig& config, const ModelConfig& model, std::string_view where);

/// The same for training. Error for what can only be used and merged.
Adapters resolve(const PeftConfig& config, const ModelConfig& model, std::string_view where);

/// As PEFT's print_trainable_parameters counts.
struct TrainedCounts {
    std::int64_t trained = 0;
    std::int64_t all = 0;  ///< of the base model and of what is trained
};
TrainedCounts count_trained(const Adapters& adapters, const ModelConfig& model);

}  // namespace drover
