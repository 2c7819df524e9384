#pragma once

#include <memory>

#include "backend/ops.h"

namespace drover::cpu {

/// Matrix products through oneDNN. The product is cut into tiles by its size alone, each computed by one
/// thread, so the result does not depend on the number of threads. Plans (primitives) are cached per tile
/// shape.
class GemmEngine {
  public:
    GemmEngine();
    ~GemmEngine();

    void run(const Gemm& gemm);

  private:
    struct Plans;
    std::unique_ptr<Plans> plans_;
};

}  // namespace drover::cpu
