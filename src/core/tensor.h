#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "core/dtype.h"
#include "core/error.h"

namespace drover {

/// Where a tensor's bytes live.
enum class Device : std::uint8_t { cpu, cuda };

/// Sizes of up to four dimensions, outermost first. A rank-0 shape is a scalar.
class Shape {
  public:
    static constexpr int max_rank = 4;

    Shape() = default;
    Shape(std::initializer_list<std::int64_t> sizes);

    int rank() const { return rank_; }
    std::int64_t operator[](int dimension) const { return sizes_[dimension]; }
    std::int64_t numel() const;
    void append(std::int64_t size);

    const std::int64_t* begin() const { return sizes_.data(); }
    const std::int64_t* end() const { return sizes_.data() + rank_; }
    bool operator==(const Shape& other) const;

    /// "[2, 17, 64]"
    std::string text() const;

  private:
    std::array<std::int64_t, max_rank> sizes_{};
    int rank_ = 0;
};

/// A non-owning view of elements (of an Arena, a mapped file, a test's vector). Cheap to copy; never frees.
/// Row-major; the outer strides may be larger than packed (a column range of a matrix), the innermost stride
/// is always 1. A default-constructed Tensor is "absent": an optional operand that was not given.
class Tensor {
  public:
    Tensor() = default;

    /// A packed view of `shape` elements at `data`.
    Tensor(void* data, DType dtype, const Shape& shape, Device device = Device::cpu);

    /// A packed CPU view over elements of a C++ type.
    template <class T>
    static Tensor of(T* data, const Shape& shape) {
        return Tensor(const_cast<std::remove_const_t<T>*>(data), dtype_of<std::remove_const_t<T>>, shape);
    }

    explicit operator bool() const { return data_ != nullptr; }

    void* raw() const { return data_; }
    template <class T>
    T* data() const {
        require(dtype_of<std::remove_const_t<T>> == dtype_, "tensor read as another type");
        return static_cast<T*>(data_);
    }

    DType dtype() const { return dtype_; }
    Device device() const { return device_; }
    const Shape& shape() const { return shape_; }
    int rank() const { return shape_.rank(); }
    std::int64_t size(int dimension) const { return shape_[dimension]; }
    /// Elements between neighbours along `dimension`.
    std::int64_t stride(int dimension) const { return strides_[dimension]; }
    std::int64_t numel() const { return shape_.numel(); }
    std::size_t bytes() const { return static_cast<std::size_t>(numel()) * size_of(dtype_); }
    bool packed() const;

    /// Rows [begin, begin+count) of the outermost dimension.
    Tensor rows(std::int64_t begin, std::int64_t count) const;
    /// The first `count` rows; an absent tensor stays absent.
    Tensor first_rows(std::int64_t count) const { return data_ == nullptr ? *this : rows(0, count); }
    /// Columns [begin, begin+count) of the innermost dimension; the result keeps the row stride.
    Tensor columns(std::int64_t begin, std::int64_t count) const;
    /// The same elements under another shape; the tensor must be packed.
    Tensor view(const Shape& shape) const;
    /// The innermost dimension of a (possibly strided) matrix cut in two: [N, a*b] → [N, a, b].
    Tensor split_columns(std::int64_t outer, std::int64_t inner) const;

    /// "bfloat16[17, 64]", for messages.
    std::string text() const;

  private:
    void* data_ = nullptr;
    Shape shape_;
    std::array<std::int64_t, Shape::max_rank> strides_{};
    DType dtype_ = DType::f32;
    Device device_ = Device::cpu;
};

}  // namespace drover
