#pragma once

#include <set>
#include <string>
#include <vector>

#include "io/safetensors.h"

namespace drover {

/// transformers 5.x keeps all experts of a Mixtral layer in two tensors; some files store them like that.
/// These are the same bytes under the published names: `mlp.experts.gate_up_proj` [E,2I,H] is
/// `block_sparse_moe.experts.M.w1.weight` and `.w3.weight` [I,H] one after the other, `mlp.experts.down_proj`
/// [E,H,I] is `.w2.weight` [H,I], and `mlp.gate.weight` beside them is `block_sparse_moe.gate.weight`.
struct FusedExperts {
    std::vector<SafetensorsEntry> published;      ///< views into the file's data
    std::set<std::string, std::less<>> replaced;  ///< names in the file that these replace
};

FusedExperts split_fused_experts(const SafetensorsHeader& header);

}  // namespace drover
