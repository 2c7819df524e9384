#pragma once

#include "io/tensor_files.h"
#include "optim/optimizer.h"

namespace drover {

struct ModelConfig;

/// The parts of a model and its optimizer that one rank saves. Everything it points to must outlive its use.
struct SavedTensors {
    const ModelConfig& config;
    const ParamSpec& model;  ///< of which the store may have some
    const ParamStore& store;
    const Optimizer& optimizer;
    DType dtype;             ///< of the saved weights; f32 if there is a master copy, which is saved instead
    bool is_first_of_stage;  ///< writes what is the same on every rank of a pipeline stage
};

inline constexpr const char* optimizer_file = "optimizer.safetensors";

/// The weights under their published names, in files of at most `max_shard_bytes`. If several ranks hold
/// copies, one of them writes.
void add_model_tensors(TensorFiles& files, const SavedTensors& saved, std::uint64_t max_shard_bytes);

inline constexpr const char* adapter_file = "adapter_model.safetensors";

/// adapter_model.safetensors: the leaves that are trained, in the model's order.
void add_adapter_tensors(TensorFiles& files, const SavedTensors& saved);

/// optimizer.safetensors: the optimizer's state as global tensors, "exp_avg/<leaf>", in its in-memory dtypes.
/// Master copies are in the weights' file. `items` are those of the whole model.
void add_optimizer_tensors(TensorFiles& files, const SavedTensors& saved,
                           std::vector<TensorFiles::Item> items);

/// The tensors of the file for these states.
std::vector<TensorFiles::Item> saved_items(const std::vector<OptimizerState>& states);

/// The global shape of a state of which this rank may hold only a part.
Shape global_shape(const OptimizerState& state);

/// Whether the state is a master copy, which is saved as the model's weight.
bool is_master(const OptimizerState& state);

}  // namespace drover
