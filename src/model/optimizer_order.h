#pragma once

#include <string>
#include <vector>

#include "core/hf_compat.h"

namespace drover {

struct Adapters;
struct ModelConfig;

/// A parameter of transformers' model, which is one leaf, or several whose elements follow each other (fused
/// experts).
struct NumberedParameter {
    std::string name;                 ///< as in named_parameters()
    std::vector<std::string> leaves;  ///< published names
};

/// The parameters by their number in an optimizer.pt of the Trainer (io/hf_optimizer_state.h): first those
/// with weight decay, then those without, each in module order.
std::vector<NumberedParameter> optimizer_order(const ModelConfig& config, const HfCompat& compat = {});
/// The same of a model with PEFT's adapters: only what is trained has a number, the adapters of a module in
/// its place.
std::vector<NumberedParameter> optimizer_order(const ModelConfig& config, const Adapters& adapters,
                                               const HfCompat& compat = {});

}  // namespace drover
