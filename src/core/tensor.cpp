#include "core/tensor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace drover {

Shape::Shape(std::initializer_list<std::int64_t> sizes) {
    for (std::int64_t size : sizes) append(size);
}

void Shape::append(std::int64_t size) {
    require(rank_ < max_rank, "shape of more than four dimensions");
    require(size >= 0, "negative size in a shape");
    sizes_[rank_++] = size;
}

std::int64_t Shape::numel() const {
    std::int64_t product = 1;
    for (std::int64_t size : *this) product *= size;
    return product;
}

bool Shape::operator==(const Shape& other) const {
    return std::equal(begin(), end(), other.begin(), other.end());
}

std::string Shape::text() const {
    return fmt::format("[{}]", fmt::join(begin(), end(), ", "));
}

Tensor::Tensor(void* data, DType dtype, const Shape& shape, Device device)
    : data_(data), shape_(shape), dtype_(dtype), device_(device) {
    std::int64_t stride = 1;
    for (int i = shape.rank() - 1; i >= 0; --i) {
        strides_[i] = stride;
        stride *= shape[i];
    }
}

bool Tensor::packed() const {
    std::int64_t expected = 1;
    for (int i = rank() - 1; i >= 0; --i) {
        if (size(i) != 1 && stride(i) != expected) return false;
        expected *= size(i);
    }
    return true;
}

Tensor Tensor::rows(std::int64_t begin, std::int64_t count) const {
    require(rank() >= 1 && begin >= 0 && count >= 0 && begin + count <= size(0),
            "row range outside the tensor");
    Tensor part = *this;
    part.data_ =
        static_cast<std::byte*>(data_) + static_cast<std::size_t>(begin * stride(0)) * size_of(dtype_);
    Shape shape{count};
    for (int i = 1; i < rank(); ++i) shape.append(size(i));
    part.shape_ = shape;
    return part;
}

Tensor Tensor::columns(std::int64_t begin, std::int64_t count) const {
    const int last = rank() - 1;
    require(rank() >= 1 && begin >= 0 && count >= 0 && begin + count <= size(last),
            "column range outside the tensor");
    Tensor part = *this;
    part.data_ = static_cast<std::byte*>(data_) + static_cast<std::size_t>(begin) * size_of(dtype_);
    Shape shape;
    for (int i = 0; i < last; ++i) shape.append(size(i));
    shape.append(count);
    part.shape_ = shape;
    return part;
}

Tensor Tensor::view(const Shape& shape) const {
    require(packed(), "view of a strided tensor");
    require(shape.numel() == numel(), "view with another number of elements");
    return Tensor(data_, dtype_, shape, device_);
}

Tensor Tensor::split_columns(std::int64_t outer, std::int64_t inner) const {
    require(rank() == 2 && outer * inner == size(1), "columns cannot be split that way");
    Tensor part = *this;
    part.shape_ = Shape{size(0), outer, inner};
    part.strides_ = {stride(0), inner, 1, 0};
    return part;
}

std::string Tensor::text() const {
    return fmt::format("{}{}", name_of(dtype_), shape_.text());
}

}  // namespace drover
