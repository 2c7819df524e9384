#pragma once

#include <fmt/format.h>

#include <initializer_list>
#include <string>
#include <string_view>

#include "core/error.h"
#include "core/tensor.h"

/// What the checks of operations are made of. Operands are made by our own model code, so a wrong one is a
/// bug of ours and not an error of the user's.
namespace drover {

using Types = std::initializer_list<DType>;

inline constexpr DType f32 = DType::f32, f64 = DType::f64, i32 = DType::i32;
inline constexpr Types any_precision = {DType::f32, DType::bf16, DType::f16};

inline std::string names_of(Types types) {
    std::string names;
    for (DType type : types) names += (names.empty() ? "" : " or ") + std::string(name_of(type));
    return names;
}

/// Checks the operands of one operation. Each function is given an operand's name and the operand.
class Operands {
  public:
    Operands(std::string_view operation, Device device) : operation_(operation), device_(device) {}

    /// What the operands of matrix products and everything between them may be on this device.
    Types activations() const {
        static constexpr Types cpu = {DType::f32, DType::bf16};
        return device_ == Device::cpu ? cpu : any_precision;
    }

    /// Present, on the backend's device, and of one of `types`.
    void typed(std::string_view name, const Tensor& tensor, Types types) const {
        if (!tensor) fail(name, "is absent");
        if (tensor.device() != device_) fail(name, "is on another device");
        for (DType type : types)
            if (tensor.dtype() == type) return;
        fail(name, fmt::format("is {}, expected {}", tensor.text(), names_of(types)));
    }

    /// The same, with a rank.
    void ranked(std::string_view name, const Tensor& tensor, Types types, int rank) const {
        typed(name, tensor, types);
        if (tensor.rank() != rank)
            fail(name, fmt::format("is {}, expected {} dimensions", tensor.text(), rank));
    }

    /// The same, with a shape.
    void shaped(std::string_view name, const Tensor& tensor, Types types, const Shape& shape) const {
        typed(name, tensor, types);
        if (!(tensor.shape() == shape))
            fail(name, fmt::format("is {}, expected {}", tensor.text(), shape.text()));
    }

    /// The same, but may be absent.
    void optional(std::string_view name, const Tensor& tensor, Types types, const Shape& shape) const {
        if (tensor) shaped(name, tensor, types, shape);
    }

    void packed(std::string_view name, const Tensor& tensor) const {
        if (!tensor.packed()) fail(name, fmt::format("({}) is strided, expected packed", tensor.text()));
    }

    void holds(bool condition, std::string_view what) const {
        if (!condition) bug(fmt::format("{}: {}", operation_, what));
    }

  private:
    [[noreturn]] void fail(std::string_view name, std::string_view what) const {
        bug(fmt::format("{}: {} {}", operation_, name, what));
    }

    std::string_view operation_;
    Device device_;
};

}  // namespace drover
