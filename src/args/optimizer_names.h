#pragma once

#include <string>
#include <string_view>

namespace drover {

/// The choices of --optim: all those of transformers 4.43 to 5.15, separated by '|'.
inline constexpr std::string_view all_optimizer_names =
    "adamw_torch|adamw_torch_fused|adamw_torch_xla|adamw_torch_npu_fused|adamw_apex_fused|adamw_hf|adafactor|"
    "adamw_anyprecision|adamw_torch_4bit|adamw_torch_8bit|ademamix|sgd|adagrad|adamw_bnb_8bit|adamw_8bit|"
    "ademamix_8bit|lion_8bit|lion_32bit|paged_adamw_32bit|paged_adamw_8bit|paged_ademamix_32bit|"
    "paged_ademamix_8bit|paged_lion_32bit|paged_lion_8bit|rmsprop|rmsprop_bnb|rmsprop_bnb_8bit|"
    "rmsprop_bnb_32bit|galore_adamw|galore_adamw_8bit|galore_adafactor|galore_adamw_layerwise|"
    "galore_adamw_8bit_layerwise|galore_adafactor_layerwise|lomo|adalomo|grokadamw|schedule_free_radam|"
    "schedule_free_adamw|schedule_free_sgd|apollo_adamw|apollo_adamw_layerwise|stable_adamw";

/// The optimizer used for a choice of --optim.
struct OptimizerChoice {
    std::string name;         ///< its name in make_optimizer
    std::string explanation;  ///< a line to print if it is not the one named; otherwise empty
};

/// UsageError for an optimizer whose arithmetic is not available here.
OptimizerChoice choose_optimizer(std::string_view name);

}  // namespace drover
