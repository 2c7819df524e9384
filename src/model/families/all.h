#pragma once

#include "model/families/family.h"

/// One per file of this folder.
namespace drover {

extern const Family llama_family, mistral_family, mixtral_family, qwen2_family, qwen3_family;

}  // namespace drover
