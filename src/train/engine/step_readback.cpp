#include "train/engine/step_readback.h"

#include "backend/backend.h"

namespace drover {

StepReadback::StepReadback(Backend& backend)
    : backend_(backend),
      staging_(backend.allocate_staging(StepSum::count * sizeof(double) + StepScalar::count * sizeof(float))),
      made_(backend.make_fence()),
      arrived_(backend.make_fence()) {}

void StepReadback::begin(Stream stream, const Tensor& scalars, const Tensor& sums) {
    auto* memory = static_cast<std::byte*>(staging_.get());
    const Stream copies = backend_.copy_stream();
    made_->put(stream);
    made_->hold(copies);
    backend_.copy(copies, sums, Tensor(memory, DType::f64, sums.shape()));
    backend_.copy(copies, scalars,
                  Tensor(memory + StepSum::count * sizeof(double), DType::f32, {StepScalar::count}));
    arrived_->put(copies);
}

double StepReadback::sum(StepSum::Index index) const {
    return static_cast<const double*>(staging_.get())[index];
}

float StepReadback::scalar(StepScalar::Index index) const {
    const auto* scalars =
        reinterpret_cast<const float*>(static_cast<const double*>(staging_.get()) + StepSum::count);
    return scalars[index];
}

}  // namespace drover
