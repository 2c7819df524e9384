#include "support/golden.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "core/convert.h"
#include "support/device_memory.h"

namespace drover::test {
namespace {

double element(const Tensor& tensor, std::int64_t offset) {
    switch (tensor.dtype()) {
        case DType::f32:
            return tensor.data<float>()[offset];
        case DType::bf16:
            return static_cast<float>(tensor.data<bf16>()[offset]);
        case DType::f16:
            return static_cast<float>(tensor.data<f16>()[offset]);
        case DType::f64:
            return tensor.data<double>()[offset];
        case DType::i32:
            return tensor.data<std::int32_t>()[offset];
        case DType::i64:
            return static_cast<double>(tensor.data<std::int64_t>()[offset]);
        case DType::u16:
            return tensor.data<std::uint16_t>()[offset];
        case DType::u8:
            return tensor.data<std::uint8_t>()[offset];
        case DType::f8:
            return static_cast<float>(tensor.data<f8>()[offset]);
    }
    return 0;
}

/// Elements from the memory of `data`, in the order and with the strides of `layout`.
std::vector<double> strided_values(const Tensor& layout, const Tensor& data) {
    std::vector<double> result(static_cast<std::size_t>(layout.numel()));
    for (std::int64_t flat = 0; flat < layout.numel(); ++flat) {
        std::int64_t rest = flat, offset = 0;
        for (int i = layout.rank() - 1; i >= 0; --i) {
            offset += rest % layout.size(i) * layout.stride(i);
            rest /= layout.size(i);
        }
        result[static_cast<std::size_t>(flat)] = element(data, offset);
    }
    return result;
}

/// The checkout; it may be elsewhere when the tests run on another machine.
std::filesystem::path source_folder() {
    const char* checkout = std::getenv("DROVER_SOURCE_DIR");
    return checkout != nullptr ? checkout : DROVER_SOURCE_DIR;
}

}  // namespace

std::filesystem::path example_path(std::string_view name) {
    return source_folder() / "examples" / name;
}

std::filesystem::path golden_path(std::string_view name) {
    return source_folder() / "tests" / "golden" / name;
}

std::vector<double> values(const Tensor& tensor) {
    if (tensor.device() == Device::cuda) {
        // All elements from the first to the last: more than the tensor's if it is strided.
        std::int64_t span = tensor.numel() == 0 ? 0 : 1;
        for (int i = 0; span > 0 && i < tensor.rank(); ++i) span += (tensor.size(i) - 1) * tensor.stride(i);
        const OwnedTensor host(tensor.dtype(), {span});
        Backend& access = device_access();
        access.synchronize({});  // another backend's streams may still be writing it
        access.copy(access.main_stream(), Tensor(tensor.raw(), tensor.dtype(), {span}, Device::cuda), host);
        access.synchronize({});
        return strided_values(tensor, host);
    }
    return strided_values(tensor, tensor);
}

double relative_error(const std::vector<double>& a, const std::vector<double>& b) {
    if (a.size() != b.size()) return std::numeric_limits<double>::infinity();
    double difference = 0, norm = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
        difference += (a[i] - b[i]) * (a[i] - b[i]);
        norm += b[i] * b[i];
    }
    return norm == 0 ? std::sqrt(difference) : std::sqrt(difference / norm);
}

double relative_error(const Tensor& a, const Tensor& b) {
    return relative_error(values(a), values(b));
}

double cosine(const Tensor& a, const Tensor& b) {
    const auto x = values(a), y = values(b);
    double dot = 0, xx = 0, yy = 0;
    for (std::size_t i = 0; i < x.size() && i < y.size(); ++i) {
        dot += x[i] * y[i];
        xx += x[i] * x[i];
        yy += y[i] * y[i];
    }
    if (xx == 0 && yy == 0) return 1;
    return dot / std::sqrt(xx * yy);
}

OwnedTensor::OwnedTensor(DType dtype, const Shape& shape)
    : bytes_(static_cast<std::size_t>(shape.numel()) * size_of(dtype) + 1),
      tensor_(bytes_.data(), dtype, shape) {
    const auto poison = [&](auto value) {
        auto* data = reinterpret_cast<decltype(value)*>(bytes_.data());
        for (std::int64_t i = 0; i < shape.numel(); ++i) data[i] = value;
    };
    const float nan = std::numeric_limits<float>::quiet_NaN();
    switch (dtype) {
        case DType::f32:
            poison(nan);
            break;
        case DType::bf16:
            poison(bf16(nan));
            break;
        case DType::f16:
            poison(f16(nan));
            break;
        case DType::f64:
            poison(static_cast<double>(nan));
            break;
        case DType::f8:
            poison(f8(nan));
            break;
        case DType::i32:
            poison(std::int32_t{-7});
            break;
        case DType::i64:
            poison(std::int64_t{-7});
            break;
        case DType::u16:
            poison(std::uint16_t{65529});
            break;
        case DType::u8:
            poison(std::uint8_t{249});
            break;
    }
}

OwnedTensor OwnedTensor::converted(const Tensor& source, DType dtype) {
    require(source.packed(), "only packed tensors can be copied");
    OwnedTensor copy(dtype, source.shape());
    if (source.dtype() == dtype)
        std::copy_n(static_cast<const std::byte*>(source.raw()), source.bytes(), copy.bytes_.data());
    else
        convert_elements(source.raw(), source.dtype(), copy.bytes_.data(), dtype, source.numel());
    return copy;
}

OwnedTensor OwnedTensor::copy_of(const Tensor& source) {
    return converted(source, source.dtype());
}

TemporaryFolder::TemporaryFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "drover-test-XXXXXX").string();
    require(mkdtemp(pattern.data()) != nullptr, "no temporary folder");
    path_ = pattern;
}

TemporaryFolder::~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
}

}  // namespace drover::test
