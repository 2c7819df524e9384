#include "app/operation_timer.h"

#include <algorithm>

#include "core/convert.h"
#include "core/counter_rng.h"
#include "core/stopwatch.h"

namespace drover {

Tensor OperationTimer::zeros(DType dtype, const Shape& shape) {
    const auto bytes = static_cast<std::size_t>(shape.numel()) * size_of(dtype);
    memory_.push_back(backend_.allocate(std::max<std::size_t>(bytes, 1)));
    return Tensor(memory_.back().get(), dtype, shape, backend_.device());
}

Tensor OperationTimer::constant(DType dtype, const Shape& shape, double value) {
    const Tensor tensor = zeros(dtype, shape);
    run(Fill{.x = tensor, .value = value});
    return tensor;
}

Tensor OperationTimer::normal(DType dtype, const Shape& shape) {
    const std::int64_t drawn = std::min(shape.numel(), std::int64_t{1} << 24);
    std::vector<float> values(static_cast<std::size_t>(drawn));
    CounterRng(42, made_++).fill_normal(leaf_hash("normal"), 0, values, 0.0f, 1.0f);
    std::vector<std::byte> converted(values.size() * size_of(dtype));
    convert_elements(values.data(), DType::f32, converted.data(), dtype, drawn);
    const Tensor tensor = zeros(dtype, shape), flat = tensor.view({shape.numel()});
    backend_.copy(stream_, Tensor(converted.data(), dtype, {drawn}), flat.rows(0, drawn));
    for (std::int64_t at = drawn; at < shape.numel(); at += drawn) {
        const std::int64_t count = std::min(drawn, shape.numel() - at);
        backend_.copy(stream_, flat.rows(0, count), flat.rows(at, count));
    }
    backend_.synchronize(stream_);
    return tensor;
}

Tensor OperationTimer::integers(const Shape& shape, std::int64_t limit) {
    std::vector<std::uint32_t> bits(static_cast<std::size_t>(shape.numel()));
    CounterRng(42, made_++).fill_bits(leaf_hash("integers"), 0, bits);
    std::vector<std::int32_t> values;
    for (const std::uint32_t word : bits)
        values.push_back(static_cast<std::int32_t>(word % static_cast<std::uint32_t>(limit)));
    const Tensor tensor = zeros(DType::i32, shape);
    backend_.copy(stream_, Tensor::of(values.data(), shape), tensor);
    backend_.synchronize(stream_);
    return tensor;
}

double OperationTimer::seconds_of(const std::function<void()>& run_once, int times) {
    const std::size_t begin = backend_.mark(stream_);
    for (int i = 0; i < times; ++i) run_once();
    const std::size_t end = backend_.mark(stream_);
    const double seconds = backend_.seconds_between(begin, end);
    backend_.forget_marks();
    return seconds / times;
}

double OperationTimer::median_seconds(const std::function<void()>& run_once) {
    constexpr double enough_seconds = 0.2, enough_in_a_row = 0.001;
    constexpr std::size_t fewest = 3, most = 1000;
    run_once();
    const int times =
        static_cast<int>(std::clamp(enough_in_a_row / std::max(seconds_of(run_once, 1), 1e-9), 1.0, 50.0));
    std::vector<double> seconds;
    const Stopwatch whole;
    while (seconds.size() < fewest || (seconds.size() < most && whole.seconds() < enough_seconds)) {
        seconds.push_back(seconds_of(run_once, times));
    }
    const auto middle = seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2);
    std::nth_element(seconds.begin(), middle, seconds.end());
    return *middle;
}

}  // namespace drover
