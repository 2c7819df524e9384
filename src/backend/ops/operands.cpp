#include "backend/ops/operands.h"

#include <fmt/format.h>

#include <string>

#include "backend/ops/check_and_cost.h"
#include "core/error.h"

namespace drover {
namespace {

std::string names_of(Types types) {
    std::string names;
    for (DType type : types) names += (names.empty() ? "" : " or ") + std::string(name_of(type));
    return names;
}

}  // namespace

Types Operands::activations() const {
    static constexpr Types cpu = {DType::f32, DType::bf16};
    return device_ == Device::cpu ? cpu : any_precision;
}

void Operands::typed(std::string_view name, const Tensor& tensor, Types types) const {
    if (!tensor) fail(name, "is absent");
    if (tensor.device() != device_) fail(name, "is on another device");
    for (DType type : types)
        if (tensor.dtype() == type) return;
    fail(name, fmt::format("is {}, expected {}", tensor.text(), names_of(types)));
}

void Operands::ranked(std::string_view name, const Tensor& tensor, Types types, int rank) const {
    typed(name, tensor, types);
    if (tensor.rank() != rank) fail(name, fmt::format("is {}, expected {} dimensions", tensor.text(), rank));
}

void Operands::shaped(std::string_view name, const Tensor& tensor, Types types, const Shape& shape) const {
    typed(name, tensor, types);
    if (!(tensor.shape() == shape))
        fail(name, fmt::format("is {}, expected {}", tensor.text(), shape.text()));
}

void Operands::optional(std::string_view name, const Tensor& tensor, Types types, const Shape& shape) const {
    if (tensor) shaped(name, tensor, types, shape);
}

void Operands::packed(std::string_view name, const Tensor& tensor) const {
    if (!tensor.packed()) fail(name, fmt::format("({}) is strided, expected packed", tensor.text()));
}

void Operands::holds(bool condition, std::string_view what) const {
    if (!condition) bug(fmt::format("{}: {}", operation_, what));
}

void Operands::fail(std::string_view name, std::string_view what) const {
    bug(fmt::format("{}: {} {}", operation_, name, what));
}

}  // namespace drover
