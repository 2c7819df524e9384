#pragma once

#include "io/tensor_files.h"
#include "model/config.h"
#include "optim/optimizer.h"

namespace drover {

/// What of a model and its optimizer is saved, as one rank has it. All must outlive its use.
struct SavedTensors {
    const ModelConfig& config;
    const ParamStore& store;
    const Optimizer& optimizer;
    DType dtype;  ///< of the saved weights; f32 where there is a master copy, which then is what is saved
    bool is_first_rank;  ///< writes what every rank has
};

inline constexpr const char* optimizer_file = "optimizer.safetensors";

/// The weights under their published names, in files of at most `max_shard_bytes`. Of several copies, one
/// rank writes its own.
void add_model_tensors(TensorFiles& files, const SavedTensors& saved, std::uint64_t max_shard_bytes);

/// optimizer.safetensors: the optimizer's state as global tensors, "exp_avg/<leaf>", in the dtypes that it
/// has in memory. Master copies are in the weights' file.
void add_optimizer_tensors(TensorFiles& files, const SavedTensors& saved);

/// The whole tensor of a state, of which this rank may have a part.
Shape global_shape(const OptimizerState& state);

/// Whether the state is a master copy, which is saved as the model's weight.
bool is_master(const OptimizerState& state);

}  // namespace drover
