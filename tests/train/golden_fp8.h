#pragma once

#include "train/golden_step.h"

namespace drover::test {

/// A step of transformers whose blocks multiply in emulated FP8 (tests/golden/fp8).
class GoldenFp8 : public GoldenStep {
  public:
    explicit GoldenFp8(const std::string& name) : GoldenStep("../fp8/" + name), recipe_(recipe_of(name)) {}

    /// The recipe of the file with this name.
    static Fp8Recipe recipe_of(std::string_view name) {
        return name.starts_with("blockwise") ? Fp8Recipe::blockwise : Fp8Recipe::tensorwise;
    }

    double loss() const { return file().tensor("loss").data<float>()[0]; }

    TrainEngineOptions options(const Precision& precision, const RecomputePolicy& recompute = {}) const {
        TrainEngineOptions options = GoldenStep::options(precision, recompute);
        options.model.fp8 = recipe_;
        return options;
    }
    std::unique_ptr<TrainEngine> engine(Backend& backend, const Precision& precision,
                                        const RecomputePolicy& recompute = {}) const {
        return GoldenStep::engine(backend, options(precision, recompute));
    }
    using GoldenStep::engine;

  private:
    Fp8Recipe recipe_;
};

}  // namespace drover::test
