#include "backend/backend.h"
#include "core/error.h"

namespace drover {

std::unique_ptr<Backend> make_cuda_backend(int) {
    throw Error("This drover was built without CUDA, so it cannot use a GPU.",
                "Train on the CPU, or build it where nvcc is installed.");
}

}  // namespace drover
