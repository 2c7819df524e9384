#include "args/optimizer_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "core/error.h"

namespace drover {
namespace {

constexpr std::array runs_as_named{
    "adamw_torch", "adamw_torch_fused", "adamw_torch_xla", "adamw_apex_fused", "adafactor",
    "sgd",         "adagrad",           "rmsprop"};

struct Substitute {
    std::string_view name, runs_as, why;
};

constexpr std::string_view not_quantised =
    "its state is not quantised here; --moments_dtype bfloat16 halves it";
constexpr std::array substitutes{
    Substitute{"adamw_hf", "adamw_torch", "the update is the same"},
    Substitute{"adamw_torch_npu_fused", "adamw_torch", "the update is the same"},
    Substitute{"adamw_anyprecision", "adamw_torch",
               "--moments_dtype and --master_weights choose the formats"},
    Substitute{"paged_adamw_32bit", "adamw_torch", "its state is not paged"},
    Substitute{"adamw_torch_4bit", "adamw_torch", not_quantised},
    Substitute{"adamw_torch_8bit", "adamw_torch", not_quantised},
    Substitute{"adamw_bnb_8bit", "adamw_torch", not_quantised},
    Substitute{"adamw_8bit", "adamw_torch", not_quantised},
    Substitute{"paged_adamw_8bit", "adamw_torch", not_quantised},
    Substitute{"rmsprop_bnb", "rmsprop", "the update is the same"},
    Substitute{"rmsprop_bnb_32bit", "rmsprop", "the update is the same"},
    Substitute{"rmsprop_bnb_8bit", "rmsprop", not_quantised},
};

}  // namespace

OptimizerChoice choose_optimizer(std::string_view name) {
    if (std::find(runs_as_named.begin(), runs_as_named.end(), name) != runs_as_named.end())
        return {.name = std::string(name), .explanation = {}};
    for (const Substitute& substitute : substitutes)
        if (substitute.name == name)
            return {.name = std::string(substitute.runs_as),
                    .explanation =
                        fmt::format("--optim {} runs as {}: {}.", name, substitute.runs_as, substitute.why)};
    throw UsageError(
        fmt::format("--optim {} is an optimizer of transformers that is not available here.", name),
        "Use adamw_torch, adafactor, sgd, adagrad or rmsprop.");
}

}  // namespace drover
