#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "core/tensor.h"
#include "io/safetensors.h"

namespace drover::test {

/// tests/golden/<name> and examples/<name> in the source tree.
std::filesystem::path golden_path(std::string_view name);
std::filesystem::path example_path(std::string_view name);

/// The elements of a floating or integer tensor (may be strided, rank ≤ 4), on any device, as doubles.
std::vector<double> values(const Tensor& tensor);

/// ‖a − b‖ / ‖b‖ (‖a − b‖ when b is zero). NaN when anything is NaN.
double relative_error(const std::vector<double>& a, const std::vector<double>& b);
double relative_error(const Tensor& a, const Tensor& b);

/// Cosine of the angle between a and b; 1 if both are zero.
double cosine(const Tensor& a, const Tensor& b);

/// Owns the memory of a packed CPU tensor, filled with NaN (floating) or −7 (integers) so that a missing
/// write shows.
class OwnedTensor {
  public:
    OwnedTensor(DType dtype, const Shape& shape);
    OwnedTensor(OwnedTensor&&) = default;
    /// A packed copy of `source`, converted to `dtype` if that is another floating type.
    static OwnedTensor copy_of(const Tensor& source);
    static OwnedTensor converted(const Tensor& source, DType dtype);
    const Tensor& tensor() const { return tensor_; }
    operator const Tensor&() const { return tensor_; }

  private:
    std::vector<std::byte> bytes_;
    Tensor tensor_;
};

/// A temporary folder, removed with everything in it.
class TemporaryFolder {
  public:
    TemporaryFolder();
    ~TemporaryFolder();
    const std::filesystem::path& path() const { return path_; }
    std::filesystem::path operator/(std::string_view name) const { return path_ / name; }

  private:
    std::filesystem::path path_;
};

}  // namespace drover::test
