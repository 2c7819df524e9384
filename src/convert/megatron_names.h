#pragma once

#include <string>
#include <string_view>

/// Megatron's names of weights (--model_style megatron), and the same in Hugging Face's style. Key and value
/// are one matrix, `self_attn.key_value`, in both.
namespace drover {

std::string to_megatron_name(std::string_view name);
/// Names of another style stay as they are.
std::string from_megatron_name(std::string_view name);

}  // namespace drover
