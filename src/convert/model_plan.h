#pragma once

#include "convert/conversion_plan.h"

namespace drover {

/// How whole tensors are written: model.safetensors or pytorch_model.bin, with an index where they are in
/// several files; or one checkpoint.pt.
enum class ModelFormat : std::uint8_t { safetensors, bin, checkpoint };

inline constexpr std::string_view checkpoint_file = "checkpoint.pt";

/// All tensors of a model as they are, floating ones in `dtype` if there is one.
std::vector<PlannedTensor> whole_model(const FullCheckpoint& model, std::optional<DType> dtype);

/// The files that hold these tensors. A file is closed before it would exceed `max_shard_bytes`.
ConversionPlan plan_model(std::vector<PlannedTensor> tensors, ModelFormat format,
                          std::uint64_t max_shard_bytes);

}  // namespace drover
