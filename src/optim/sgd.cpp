#include "optim/moment_optimizer.h"

namespace drover {
namespace {

class SgdOptimizer final : public MomentOptimizer {
  public:
    SgdOptimizer(const SgdSettings& settings, const OptimizerContext& context)
        : MomentOptimizer(settings.momentum == 0 ? "" : "momentum_buffer", settings.weight_decay, context),
          momentum_(static_cast<float>(settings.momentum)) {}

    void update(Backend& backend, Stream stream, const Tensor& scalars) override {
        backend.run(
            stream,
            Sgd{.leaves = leaves(), .scalars = scalars, .momentum = momentum_, .rounding = rounding()});
    }

  private:
    float momentum_;
};

}  // namespace

std::unique_ptr<Optimizer> make_sgd(const SgdSettings& settings, const OptimizerContext& context) {
    return std::make_unique<SgdOptimizer>(settings, context);
}

}  // namespace drover
