#include "backend/cpu/kernels.h"
#include "backend/cpu/kernels/double_sums.h"

namespace drover::cpu::DROVER_ISA {
namespace {

/// A tensor as rows of contiguous elements: one long row when it is packed, else its innermost dimension.
struct Rows {
    explicit Rows(const Tensor& of) : tensor(of) {
        const bool flat = tensor.packed();
        width = flat ? tensor.numel() : tensor.size(tensor.rank() - 1);
        count = width == 0 ? 0 : tensor.numel() / width;
        outer_rank = flat ? 0 : tensor.rank() - 1;
    }

    /// Offset of a row's first element.
    std::int64_t offset(std::int64_t row) const {
        std::int64_t result = 0;
        for (int i = outer_rank - 1; i >= 0; --i) {
            result += row % tensor.size(i) * tensor.stride(i);
            row /= tensor.size(i);
        }
        return result;
    }

    const Tensor& tensor;
    std::int64_t width;
    std::int64_t count;
    int outer_rank;
};

/// Calls body(offset, count) for pieces of contiguous elements of a tensor, on all threads.
template <class Body>
void for_each_piece(const Rows& rows, const Body& body) {
    if (rows.count == 1)
        return for_each_range(rows.width, elements_per_task,
                              [&](std::int64_t begin, std::int64_t end) { body(begin, end - begin); });
    for_each_row(rows.count, rows.width, [&](std::int64_t row) { body(rows.offset(row), rows.width); });
}

template <class Element>
void fill_with(const Tensor& x, Element value) {
    auto* data = static_cast<Element*>(x.raw());
    for_each_piece(Rows(x), [=](std::int64_t offset, std::int64_t count) {
        for (std::int64_t i = 0; i < count; ++i) data[offset + i] = value;
    });
}

std::uint16_t half_bits(float value, DType dtype) {
    std::uint16_t bits = 0;
    if (dtype == DType::bf16)
        store_one(reinterpret_cast<bf16*>(&bits), 0, value);
    else
        store_one(reinterpret_cast<f16*>(&bits), 0, value);
    return bits;
}

template <class From, class To>
void convert(const From* from, To* to, std::int64_t count) {
    for_each_vector(count, [=](auto at) { store(to, at, load(from, at)); });
}

}  // namespace

void fill(const Fill& op) {
    switch (op.x.dtype()) {
        case DType::f32:
            return fill_with(op.x, static_cast<float>(op.value));
        case DType::f64:
            return fill_with(op.x, op.value);
        case DType::bf16:
        case DType::f16:
            return fill_with(op.x, half_bits(static_cast<float>(op.value), op.x.dtype()));
        case DType::i32:
            return fill_with(op.x, static_cast<std::int32_t>(op.value));
        case DType::i64:
            return fill_with(op.x, static_cast<std::int64_t>(op.value));
        case DType::u16:
            return fill_with(op.x, static_cast<std::uint16_t>(op.value));
        case DType::u8:
            return fill_with(op.x, static_cast<std::uint8_t>(op.value));
        case DType::f8:
            unexpected_dtype();
    }
}

void cast(const Cast& op) {
    with_any_type(op.from.dtype(), [&](auto f) {
        with_any_type(op.to.dtype(), [&](auto t) {
            const auto* from = static_cast<const decltype(f)*>(op.from.raw());
            auto* to = static_cast<decltype(t)*>(op.to.raw());
            const Rows from_rows(op.from), to_rows(op.to);
            if (from_rows.count == 1 && to_rows.count == 1) {
                for_each_range(to_rows.width, elements_per_task, [=](std::int64_t begin, std::int64_t end) {
                    convert(from + begin, to + begin, end - begin);
                });
            } else {
                for_each_row(op.to.size(0), op.to.size(1), [=, &op](std::int64_t row) {
                    convert(from + row * op.from.stride(0), to + row * op.to.stride(0), op.to.size(1));
                });
            }
        });
    });
}

void scale(const Scale& op) {
    const std::int64_t width = op.x.size(1);
    with_any_type(op.x.dtype(), [&](auto t) {
        auto* x = static_cast<decltype(t)*>(op.x.raw());
        for_each_row(op.x.size(0), width, [=, &op](std::int64_t row) {
            auto* const here = x + row * op.x.stride(0);
            for_each_vector(width, [=, &op](auto at) { store(here, at, load(here, at) * op.factor); });
        });
    });
}

void transpose(const Transpose& op) {
    const std::int64_t columns = op.x.size(0), x_stride = op.x.stride(0), y_stride = op.y.stride(0);
    // Squares, so that lines of both matrices are used while they are in the cache.
    constexpr std::int64_t side = 32;
    const std::int64_t squares = (columns + side - 1) / side;
    with_any_type(op.x.dtype(), [&](auto f) {
        with_any_type(op.y.dtype(), [&](auto t) {
            const auto* x = static_cast<const decltype(f)*>(op.x.raw());
            auto* y = static_cast<decltype(t)*>(op.y.raw());
            for_each_range(op.y.size(0), side, [=, &op](std::int64_t begin, std::int64_t end) {
                for (std::int64_t square = 0; square < squares; ++square) {
                    const std::int64_t last = (square + 1) * side < columns ? (square + 1) * side : columns;
                    for (std::int64_t row = begin; row < end; ++row)
                        for (std::int64_t c = square * side; c < last; ++c) {
                            float value = load_one(x, c * x_stride + row);
                            if (op.accumulate) value += load_one(y, row * y_stride + c);
                            store_one(y, row * y_stride + c, value);
                        }
                }
            });
        });
    });
}

void add(const Add& op) {
    with_any_type(op.into.dtype(), [&](auto t) {
        with_any_type(op.x.dtype(), [&](auto f) {
            auto* into = static_cast<decltype(t)*>(op.into.raw());
            const auto* x = static_cast<const decltype(f)*>(op.x.raw());
            for_each_range(op.into.numel(), elements_per_task, [=](std::int64_t begin, std::int64_t end) {
                for_each_vector(end - begin, [=](auto at) {
                    store(into + begin, at, load(into + begin, at) + load(x + begin, at));
                });
            });
        });
    });
}

void sum(const Sum& op) {
    auto* out = static_cast<double*>(op.out.raw());
    double total = 0;
    if (op.x.dtype() == DType::f64)
        for (std::int64_t i = 0; i < op.x.size(0); ++i) total += static_cast<const double*>(op.x.raw())[i];
    else
        total =
            sum_in_double(static_cast<const float*>(op.x.raw()), op.x.size(0), [](Doubles x) { return x; });
    *out = (op.accumulate ? *out : 0) + op.scale * total;
}

}  // namespace drover::cpu::DROVER_ISA
