#pragma once

#include "backend/cuda/kernels.h"

/// Attention's gradients by a kernel of our own, on Hopper: bf16 or fp16, heads of up to 128 columns, any
/// sequences and windows. It needs working memory that grows with the tokens, and none that grows with their
/// pairs.
namespace drover::cuda {

/// Whether hopper_attention_backward() can do it within `most_bytes` of working memory.
bool hopper_attention_backward_takes(const Launch& launch, const AttentionBackward& operation,
                                     std::int64_t most_bytes);
void hopper_attention_backward(const Launch& launch, const AttentionBackward& operation,
                               std::int64_t most_bytes);

}  // namespace drover::cuda
