#include "optim/moment_optimizer.h"

namespace drover {
namespace {

class RmspropOptimizer final : public MomentOptimizer {
  public:
    RmspropOptimizer(const RmspropSettings& settings, const OptimizerContext& context)
        : MomentOptimizer("square_avg", settings.weight_decay, context), settings_(settings) {}

    void update(Backend& backend, Stream stream, const Tensor& scalars) override {
        backend.run(stream, Rmsprop{.leaves = leaves(),
                                    .scalars = scalars,
                                    .alpha = settings_.alpha,
                                    .eps = static_cast<float>(settings_.eps),
                                    .rounding = rounding()});
    }

  private:
    RmspropSettings settings_;
};

}  // namespace

std::unique_ptr<Optimizer> make_rmsprop(const RmspropSettings& settings, const OptimizerContext& context) {
    return std::make_unique<RmspropOptimizer>(settings, context);
}

}  // namespace drover
