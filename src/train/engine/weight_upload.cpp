#include "train/engine/weight_upload.h"

#include <algorithm>

#include "backend/backend.h"
#include "core/convert.h"

namespace drover {

WeightUpload::WeightUpload(Backend& backend, Stream stream)
    : backend_(backend),
      stream_(stream),
      piece_(backend.device() == Device::cpu ? MemoryBlock() : backend.allocate_staging(piece_bytes)) {}

void WeightUpload::write(std::span<const float> values, const Tensor& target) {
    const DType dtype = target.dtype();
    if (!piece_) {
        convert_elements(values.data(), DType::f32, target.raw(), dtype, target.numel());
        return;
    }
    const Tensor flat = target.view({target.numel()});
    const auto most = static_cast<std::int64_t>(piece_bytes / size_of(dtype));
    for (std::int64_t begin = 0; begin < flat.numel(); begin += most) {
        const std::int64_t count = std::min(most, flat.numel() - begin);
        convert_elements(values.data() + begin, DType::f32, piece_.get(), dtype, count);
        backend_.copy(stream_, Tensor(piece_.get(), dtype, {count}), flat.rows(begin, count));
        backend_.synchronize(stream_);
    }
}

}  // namespace drover
