#include "convert/model_plan.h"

#include <fmt/format.h>

#include "io/tensor_files.h"

namespace drover {
namespace {

/// "model-00001-of-00002.safetensors" → "pytorch_model-00001-of-00002.bin"
std::string pickle_name_of(const std::string& name) {
    return fmt::format("pytorch_{}.bin", name.substr(0, name.rfind('.')));
}

}  // namespace

std::vector<PlannedTensor> whole_model(const FullCheckpoint& model, std::optional<DType> dtype) {
    std::vector<PlannedTensor> tensors;
    for (std::size_t i = 0; i < model.items().size(); ++i) {
        const TensorSource::Item& item = model.items()[i];
        TensorBuilder builder(item.name, item.dtype);
        builder.whole(i, item);
        tensors.push_back(builder.tensor());
    }
    set_floating_dtype(tensors, dtype);
    return tensors;
}

ConversionPlan plan_model(std::vector<PlannedTensor> tensors, ModelFormat format,
                          std::uint64_t max_shard_bytes) {
    ConversionPlan plan;
    if (format == ModelFormat::checkpoint) {
        plan.files.push_back(torch_file(std::string(checkpoint_file), std::move(tensors)));
        return plan;
    }
    std::vector<TensorFiles::Item> items;
    std::vector<std::uint64_t> bytes;
    for (const PlannedTensor& tensor : tensors) {
        items.push_back({tensor.name, tensor.dtype, tensor.shape});
        bytes.push_back(tensor.bytes());
    }
    const bool is_pickle = format == ModelFormat::bin;
    ShardPlan shards = plan_shards(bytes, max_shard_bytes);
    if (is_pickle)
        for (std::string& name : shards.file_names) name = pickle_name_of(name);
    std::vector<std::vector<PlannedTensor>> parts(shards.file_names.size());
    for (std::size_t i = 0; i < tensors.size(); ++i)
        parts[shards.file_of[i]].push_back(std::move(tensors[i]));
    for (std::size_t i = 0; i < parts.size(); ++i)
        plan.files.push_back(is_pickle ? torch_file(shards.file_names[i], std::move(parts[i]))
                                       : safetensors_file(shards.file_names[i], std::move(parts[i])));
    if (parts.size() > 1)
        plan.texts[std::string(is_pickle ? pickle_index_file : weights_index_file)] =
            weights_index_text(items, shards);
    return plan;
}

}  // namespace drover
