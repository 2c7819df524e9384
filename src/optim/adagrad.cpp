#include "optim/moment_optimizer.h"

namespace drover {
namespace {

class AdagradOptimizer final : public MomentOptimizer {
  public:
    AdagradOptimizer(const AdagradSettings& settings, const OptimizerContext& context)
        : MomentOptimizer("sum", settings.weight_decay, context), eps_(static_cast<float>(settings.eps)) {}

    void update(Backend& backend, Stream stream, const Tensor& scalars) override {
        backend.run(stream,
                    Adagrad{.leaves = leaves(), .scalars = scalars, .eps = eps_, .rounding = rounding()});
    }

  private:
    float eps_;
};

}  // namespace

std::unique_ptr<Optimizer> make_adagrad(const AdagradSettings& settings, const OptimizerContext& context) {
    return std::make_unique<AdagradOptimizer>(settings, context);
}

}  // namespace drover
