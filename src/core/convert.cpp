#include "core/convert.h"

#include <cstring>

#include "core/error.h"

namespace drover {
namespace {

template <class From, class To>
void convert(const From* from, To* to, std::int64_t count) {
    constexpr std::int64_t worth_threads = 1 << 20;
#pragma omp parallel for schedule(static) if (count >= worth_threads)
    for (std::int64_t i = 0; i < count; ++i) {
        if constexpr (std::is_same_v<From, double> && std::is_same_v<To, double>)
            to[i] = from[i];
        else
            to[i] = static_cast<To>(static_cast<float>(from[i]));
    }
}

template <class From>
void convert_from(const From* from, void* to, DType to_dtype, std::int64_t count) {
    switch (to_dtype) {
        case DType::f32:
            return convert(from, static_cast<float*>(to), count);
        case DType::bf16:
            return convert(from, static_cast<bf16*>(to), count);
        case DType::f16:
            return convert(from, static_cast<f16*>(to), count);
        case DType::f64:
            return convert(from, static_cast<double*>(to), count);
        default:
            bug("conversion to a type that is not floating");
    }
}

}  // namespace

void convert_elements(const void* from, DType from_dtype, void* to, DType to_dtype, std::int64_t count) {
    if (from_dtype == to_dtype) {
        if (count > 0) std::memcpy(to, from, static_cast<std::size_t>(count) * size_of(to_dtype));
        return;
    }
    switch (from_dtype) {
        case DType::f32:
            return convert_from(static_cast<const float*>(from), to, to_dtype, count);
        case DType::bf16:
            return convert_from(static_cast<const bf16*>(from), to, to_dtype, count);
        case DType::f16:
            return convert_from(static_cast<const f16*>(from), to, to_dtype, count);
        case DType::f64:
            return convert_from(static_cast<const double*>(from), to, to_dtype, count);
        default:
            bug("conversion from a type that is not floating");
    }
}

}  // namespace drover
