#pragma once

#include <initializer_list>
#include <string_view>

#include "core/tensor.h"

namespace drover {

using Types = std::initializer_list<DType>;

/// Checks the operands of one operation. Each function is given an operand's name and the operand. Operands
/// are made by our own model code, so a wrong one is a bug, not a user error: the program aborts with a
/// message that names the operation and the operand.
class Operands {
  public:
    Operands(std::string_view operation, Device device) : operation_(operation), device_(device) {}

    /// The types that operands of matrix products, and of everything between them, may have on this device.
    Types activations() const;

    /// Present, on the backend's device, and of one of `types`.
    void typed(std::string_view name, const Tensor& tensor, Types types) const;
    /// The same, with a rank.
    void ranked(std::string_view name, const Tensor& tensor, Types types, int rank) const;
    /// The same, with a shape.
    void shaped(std::string_view name, const Tensor& tensor, Types types, const Shape& shape) const;
    /// The same, but may be absent.
    void optional(std::string_view name, const Tensor& tensor, Types types, const Shape& shape) const;
    void packed(std::string_view name, const Tensor& tensor) const;
    /// Any other condition; `what` says what is wrong when it does not hold.
    void holds(bool condition, std::string_view what) const;

  private:
    [[noreturn]] void fail(std::string_view name, std::string_view what) const;

    std::string_view operation_;
    Device device_;
};

}  // namespace drover
