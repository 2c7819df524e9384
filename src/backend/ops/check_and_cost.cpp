#include "backend/ops/check_and_cost.h"

namespace drover {

double bytes_of(std::initializer_list<Tensor> tensors) {
    double bytes = 0;
    for (const Tensor& tensor : tensors)
        if (tensor) bytes += static_cast<double>(tensor.bytes());
    return bytes;
}

OperationCost memory_bound(std::string_view name, double bytes) {
    return {.name = name, .bytes = bytes};
}

OperationCost memory_bound(std::string_view name, std::initializer_list<Tensor> read,
                           std::initializer_list<Tensor> written) {
    return memory_bound(name, bytes_of(read) + bytes_of(written));
}

}  // namespace drover
