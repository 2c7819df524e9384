#pragma once

#include "backend/ops/experts.h"
#include "backend/ops/gemm.h"

namespace drover::cpu {

/// Calls product(Gemm) for every expert of a grouped product, in order; those without rows too, so that a
/// weight gradient that is to be overwritten becomes zero.
template <class Product>
void for_each_product(const GroupedGemm& op, const Product& product) {
    const std::int32_t* offsets = op.offsets.data<std::int32_t>();
    const std::int64_t experts = op.offsets.size(0) - 1;
    for (std::int64_t e = 0; e < experts; ++e) {
        const std::int64_t begin = offsets[e], count = offsets[e + 1] - begin;
        const Tensor rows = op.a.rows(begin, count);
        const auto matrix = [&](const Tensor& stacked) {
            const std::int64_t height = stacked.size(0) / experts;
            return stacked.rows(e * height, height);
        };
        const auto run = [&](Gemm one) {
            one.accumulate = op.accumulate;
            product(one);
        };
        switch (op.use) {
            case GroupedGemm::Use::forward:
                run(Gemm::forward(rows, matrix(op.b), op.c.rows(begin, count)));
                break;
            case GroupedGemm::Use::data_gradient:
                run(Gemm::data_gradient(rows, matrix(op.b), op.c.rows(begin, count)));
                break;
            case GroupedGemm::Use::weight_gradient:
                run(Gemm::weight_gradient(rows, op.b.rows(begin, count), matrix(op.c), false));
                break;
        }
    }
}

}  // namespace drover::cpu
