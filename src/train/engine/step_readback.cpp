#include "train/engine/step_readback.h"

namespace drover {

StepReadback::StepReadback(Backend& backend)
    : backend_(backend),
      staging_(backend.allocate_staging(sizeof(double) + StepScalar::count * sizeof(float))),
      made_(backend.make_fence()),
      arrived_(backend.make_fence()) {}

void StepReadback::begin(Stream stream, const Tensor& scalars, const Tensor& loss) {
    auto* memory = static_cast<std::byte*>(staging_.get());
    const Stream copies = backend_.copy_stream();
    made_->put(stream);
    made_->hold(copies);
    backend_.copy(copies, loss, Tensor(memory, DType::f64, {1}));
    backend_.copy(copies, scalars, Tensor(memory + sizeof(double), DType::f32, {StepScalar::count}));
    arrived_->put(copies);
}

double StepReadback::loss() const {
    return *static_cast<const double*>(staging_.get());
}

float StepReadback::scalar(StepScalar::Index index) const {
    const auto* scalars = reinterpret_cast<const float*>(static_cast<const double*>(staging_.get()) + 1);
    return scalars[index];
}

}  // namespace drover
