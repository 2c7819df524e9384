#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "io/safetensors.h"

namespace drover {

/// A Python name that a pickle may use, and how the reader interprets it. None of them runs Python code.
struct PickleName {
    enum class Meaning : std::uint8_t {
        ordered_dict,
        tensor,
        parameter,
        tensor_with_attributes,
        size,
        device,
        encode,
        storage,
        dtype,
        reference,
        record,
        closed
    };
    std::string_view full_name;
    Meaning meaning;
    FileDType dtype = FileDType::F32;  ///< of a storage's elements; the type that a dtype names
};

/// The whole list.
inline constexpr std::array<PickleName, 53> pickle_names = {{
    {"collections.OrderedDict", PickleName::Meaning::ordered_dict},
    {"torch._utils._rebuild_tensor_v2", PickleName::Meaning::tensor},
    {"torch._utils._rebuild_parameter", PickleName::Meaning::parameter},
    // A tensor that somebody gave attributes, as DeepSpeed does.
    {"torch._tensor._rebuild_from_type_v2", PickleName::Meaning::tensor_with_attributes},
    {"torch.Tensor", PickleName::Meaning::closed},
    {"torch.Size", PickleName::Meaning::size},
    {"torch.device", PickleName::Meaning::device},
    {"_codecs.encode", PickleName::Meaning::encode},
    {"torch.FloatStorage", PickleName::Meaning::storage, FileDType::F32},
    {"torch.DoubleStorage", PickleName::Meaning::storage, FileDType::F64},
    {"torch.HalfStorage", PickleName::Meaning::storage, FileDType::F16},
    {"torch.BFloat16Storage", PickleName::Meaning::storage, FileDType::BF16},
    {"torch.LongStorage", PickleName::Meaning::storage, FileDType::I64},
    {"torch.IntStorage", PickleName::Meaning::storage, FileDType::I32},
    {"torch.ShortStorage", PickleName::Meaning::storage, FileDType::I16},
    {"torch.CharStorage", PickleName::Meaning::storage, FileDType::I8},
    {"torch.ByteStorage", PickleName::Meaning::storage, FileDType::U8},
    {"torch.BoolStorage", PickleName::Meaning::storage, FileDType::BOOL},
    {"torch.float32", PickleName::Meaning::dtype, FileDType::F32},
    {"torch.float64", PickleName::Meaning::dtype, FileDType::F64},
    {"torch.float16", PickleName::Meaning::dtype, FileDType::F16},
    {"torch.bfloat16", PickleName::Meaning::dtype, FileDType::BF16},
    {"torch.int64", PickleName::Meaning::dtype, FileDType::I64},
    {"torch.int32", PickleName::Meaning::dtype, FileDType::I32},
    {"torch.int16", PickleName::Meaning::dtype, FileDType::I16},
    {"torch.int8", PickleName::Meaning::dtype, FileDType::I8},
    {"torch.uint8", PickleName::Meaning::dtype, FileDType::U8},
    {"torch.bool", PickleName::Meaning::dtype, FileDType::BOOL},
    // torch_xla puts each tensor into a file of its own, and this in its place.
    {"torch_xla.utils.serialization.TensorReference", PickleName::Meaning::reference},
    // The table of contents of a folder of torch.distributed.checkpoint.
    {"torch.distributed.checkpoint.metadata.Metadata", PickleName::Meaning::record},
    {"torch.distributed.checkpoint.metadata.TensorStorageMetadata", PickleName::Meaning::record},
    {"torch.distributed.checkpoint.metadata.BytesStorageMetadata", PickleName::Meaning::record},
    {"torch.distributed.checkpoint.metadata.TensorProperties", PickleName::Meaning::record},
    {"torch.distributed.checkpoint.metadata.ChunkStorageMetadata", PickleName::Meaning::record},
    {"torch.distributed.checkpoint.metadata.MetadataIndex", PickleName::Meaning::record},
    {"torch.distributed.checkpoint.metadata.StorageMeta", PickleName::Meaning::record},
    {"torch.distributed.checkpoint.filesystem._StorageInfo", PickleName::Meaning::record},
    {"torch.distributed.checkpoint.metadata._MEM_FORMAT_ENCODING", PickleName::Meaning::closed},
    {"torch.serialization._get_layout", PickleName::Meaning::closed},
    {"pathlib.PosixPath", PickleName::Meaning::closed},
    {"pathlib._local.PosixPath", PickleName::Meaning::closed},
    {"pathlib.PurePosixPath", PickleName::Meaning::closed},
    // What DeepSpeed saves beside the tensors of a ZeRO optimizer.
    {"deepspeed.runtime.fp16.loss_scaler.LossScaler", PickleName::Meaning::record},
    {"deepspeed.runtime.fp16.loss_scaler.DynamicLossScaler", PickleName::Meaning::record},
    {"deepspeed.utils.tensor_fragment.fragment_address", PickleName::Meaning::record},
    {"deepspeed.runtime.zero.config.ZeroStageEnum", PickleName::Meaning::closed},
    {"__builtin__.set", PickleName::Meaning::closed},
    // The random state that the Trainer saves contains numpy's, which is not used here.
    {"numpy.core.multiarray._reconstruct", PickleName::Meaning::closed},
    {"numpy._core.multiarray._reconstruct", PickleName::Meaning::closed},
    {"numpy.core.multiarray.scalar", PickleName::Meaning::closed},
    {"numpy._core.multiarray.scalar", PickleName::Meaning::closed},
    {"numpy.ndarray", PickleName::Meaning::closed},
    {"numpy.dtype", PickleName::Meaning::closed},
}};

/// Its index in the list; empty when it is not there.
constexpr std::optional<std::size_t> find_pickle_name(std::string_view module, std::string_view name) {
    for (std::size_t i = 0; i < pickle_names.size(); ++i) {
        const std::string_view full = pickle_names[i].full_name;
        if (full.size() == module.size() + 1 + name.size() && full.starts_with(module) &&
            full[module.size()] == '.' && full.ends_with(name))
            return i;
    }
    return std::nullopt;
}

}  // namespace drover
