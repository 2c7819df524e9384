#pragma once

#include <memory>

#include "backend/backend_settings.h"
#include "backend/ops/gemm.h"

namespace drover::cpu {

/// Matrix products: bf16 on the matrix unit where there is one, everything else through oneDNN, whose plans
/// (primitives) are cached per tile shape. A product is cut into tiles by its size alone, each computed by
/// one thread, so the result does not depend on the number of threads.
class GemmEngine {
  public:
    explicit GemmEngine(const BackendSettings& settings);
    ~GemmEngine();

    void run(const Gemm& gemm);

  private:
    struct Plans;
    std::unique_ptr<Plans> plans_;
};

}  // namespace drover::cpu
