#pragma once

#include <algorithm>
#include <cmath>
#include <ostream>
#include <tuple>
#include <utility>
#include <vector>

#include "backend/backend_under_test.h"
#include "backend/test_data.h"

namespace drover::test {

/// Sequences as (first token, length).
using Ranges = std::vector<std::pair<std::int32_t, std::int32_t>>;

/// A micro-batch: its shape, and its sequences unless every row is one sequence.
struct AttentionBatch {
    std::int64_t rows, row_length;
    std::int64_t heads, kv_heads, head_size;
    std::int64_t window = 0;
    Ranges sequences = {};

    friend void PrintTo(const AttentionBatch& batch, std::ostream* out) {
        *out << batch.rows << "x" << batch.row_length << " tokens, heads " << batch.heads << "/"
             << batch.kv_heads << " of " << batch.head_size << ", window " << batch.window << ", sequences";
        for (auto [begin, length] : batch.sequences) *out << " " << begin << "+" << length;
    }
    std::int64_t tokens() const { return rows * row_length; }
    float scale() const { return 1 / std::sqrt(static_cast<float>(head_size)); }
    Shape query_shape() const { return {tokens(), heads, head_size}; }
    Shape key_shape() const { return {tokens(), kv_heads, head_size}; }
    /// For each token the first token of its sequence, or −1.
    std::vector<std::int64_t> owners() const {
        std::vector<std::int64_t> owner(static_cast<std::size_t>(tokens()), -1);
        const auto claim = [&](std::int64_t begin, std::int64_t length) {
            for (std::int64_t i = begin; i < begin + length; ++i) owner[static_cast<std::size_t>(i)] = begin;
        };
        for (auto [begin, length] : sequences) claim(begin, length);
        if (sequences.empty())
            for (std::int64_t row = 0; row < rows; ++row) claim(row * row_length, row_length);
        return owner;
    }
};

/// AttentionInputs on the host, of one dtype.
struct AttentionInputs {
    OwnedTensor q, k, v, dout;

    AttentionInputs(const AttentionBatch& batch, DType dtype, unsigned seed)
        : q(random_normal(dtype, batch.query_shape(), seed)),
          k(random_normal(dtype, batch.key_shape(), seed + 1)),
          v(random_normal(dtype, batch.key_shape(), seed + 2)),
          dout(random_normal(dtype, batch.query_shape(), seed + 3)) {}
};

/// The results of the two operations, on the host.
struct AttentionResults {
    OwnedTensor out, lse, dq, dk, dv;
    OwnedTensor behind;  ///< the rows after those of dq‖dk‖dv
};

/// Packed tensors side by side in one matrix, as a model keeps q‖k‖v, with `behind` rows of NaN after it.
inline Tensor side_by_side(Workbench& bench, DType dtype, const AttentionBatch& batch, std::int64_t behind) {
    return bench.make(dtype, {batch.tokens() + behind, (batch.heads + 2 * batch.kv_heads) * batch.head_size});
}

struct AttentionParts {
    Tensor q, k, v;

    AttentionParts(const Tensor& matrix, const AttentionBatch& batch) {
        const std::int64_t queries = batch.heads * batch.head_size, keys = batch.kv_heads * batch.head_size;
        q = matrix.columns(0, queries).split_columns(batch.heads, batch.head_size);
        k = matrix.columns(queries, keys).split_columns(batch.kv_heads, batch.head_size);
        v = matrix.columns(queries + keys, keys).split_columns(batch.kv_heads, batch.head_size);
    }
};

/// Forward and backward on strided operands, each followed by the memory of `behind` tokens filled with NaN.
inline AttentionResults run(Workbench& bench, const AttentionBatch& batch, const Tensor& q, const Tensor& k,
                            const Tensor& v, const Tensor& dout, std::int64_t behind = 0) {
    const DType dtype = q.dtype();
    const std::int64_t queries = batch.heads * batch.head_size, keys = batch.kv_heads * batch.head_size;
    const Tensor whole = side_by_side(bench, dtype, batch, behind),
                 whole_gradients = side_by_side(bench, dtype, batch, behind);
    const Tensor matrix = whole.rows(0, batch.tokens()), gradients = whole_gradients.rows(0, batch.tokens());
    const auto like_queries = [&] {
        return bench.make(dtype, {batch.tokens() + behind, batch.heads, batch.head_size})
            .rows(0, batch.tokens());
    };
    const auto place = [&](const Tensor& part, std::int64_t column, std::int64_t width) {
        bench.run(
            Cast{.from = bench.put(part).view({batch.tokens(), width}), .to = matrix.columns(column, width)});
    };
    place(q, 0, queries);
    place(k, queries, keys);
    place(v, queries + keys, keys);
    const AttentionParts given(matrix, batch), wanted(gradients, batch);

    Sequences sequences{.rows = batch.rows, .row_length = batch.row_length};
    if (!batch.sequences.empty()) {
        const auto count = static_cast<std::int64_t>(batch.sequences.size());
        OwnedTensor begin(DType::i32, {count}), length(DType::i32, {count});
        for (std::int64_t i = 0; i < count; ++i)
            std::tie(begin.tensor().data<std::int32_t>()[i], length.tensor().data<std::int32_t>()[i]) =
                batch.sequences[static_cast<std::size_t>(i)];
        sequences.begin = bench.put(begin);
        sequences.length = bench.put(length);
    }
    const Tensor out = like_queries(), own_dout = like_queries();
    bench.run(Cast{.from = bench.put(dout).view({batch.tokens(), queries}),
                   .to = own_dout.view({batch.tokens(), queries})});
    const Tensor lse = bench.make(DType::f32, {batch.rows, batch.heads, batch.row_length});
    bench.run(Attention{.q = given.q,
                        .k = given.k,
                        .v = given.v,
                        .out = out,
                        .lse = lse,
                        .sequences = sequences,
                        .scale = batch.scale(),
                        .window = batch.window});
    bench.run(AttentionBackward{.q = given.q,
                                .k = given.k,
                                .v = given.v,
                                .out = out,
                                .lse = lse,
                                .dout = own_dout,
                                .dq = wanted.q,
                                .dk = wanted.k,
                                .dv = wanted.v,
                                .sequences = sequences,
                                .scale = batch.scale(),
                                .window = batch.window});
    const auto taken = [&](std::int64_t column, std::int64_t width, const Shape& shape) {
        const Tensor packed = bench.make(dtype, {batch.tokens(), width});
        bench.run(Cast{.from = gradients.columns(column, width), .to = packed});
        return bench.get(packed.view(shape));
    };
    return {bench.get(out),
            bench.get(lse),
            taken(0, queries, batch.query_shape()),
            taken(queries, keys, batch.key_shape()),
            taken(queries + keys, keys, batch.key_shape()),
            bench.get(whole_gradients.rows(batch.tokens(), behind))};
}

inline AttentionResults run(Workbench& bench, const AttentionBatch& batch, const AttentionInputs& in,
                            std::int64_t behind = 0) {
    return run(bench, batch, in.q, in.k, in.v, in.dout, behind);
}

// ----------------------------------------------------------------------------------------------------
// reference

/// Softmax over every visible pair, written out in f64.
struct AttentionReference {
    std::vector<double> out, lse, dq, dk, dv;

    AttentionReference(const AttentionBatch& b, const AttentionInputs& inputs) {
        const std::vector<double> q = values(inputs.q), k = values(inputs.k), v = values(inputs.v);
        const std::vector<double> dout = values(inputs.dout);
        const std::vector<std::int64_t> owner = b.owners();
        out.assign(q.size(), 0), dq.assign(q.size(), 0), dk.assign(k.size(), 0), dv.assign(k.size(), 0);
        lse.assign(static_cast<std::size_t>(b.tokens() * b.heads), 0);
        const auto dot = [&](const double* x, const double* y) {
            double sum = 0;
            for (std::int64_t d = 0; d < b.head_size; ++d) sum += x[d] * y[d];
            return sum;
        };
        const auto add = [&](double* to, double factor, const double* x) {
            for (std::int64_t d = 0; d < b.head_size; ++d) to[d] += factor * x[d];
        };
        for (std::int64_t i = 0; i < b.tokens(); ++i)
            for (std::int64_t head = 0; head < b.heads; ++head) {
                const std::int64_t begin = owner[static_cast<std::size_t>(i)];
                if (begin < 0) continue;
                const std::int64_t first = b.window > 0 ? std::max(begin, i - b.window + 1) : begin;
                const std::int64_t at_query = (i * b.heads + head) * b.head_size;
                const auto at_key = [&](std::int64_t j) {
                    return (j * b.kv_heads + head / (b.heads / b.kv_heads)) * b.head_size;
                };
                std::vector<double> weight;
                for (std::int64_t j = first; j <= i; ++j)
                    weight.push_back(dot(&q[at_query], &k[at_key(j)]) * b.scale());
                const double largest = *std::ranges::max_element(weight);
                double sum = 0;
                for (double score : weight) sum += std::exp(score - largest);
                const double log_sum = largest + std::log(sum);
                for (double& score : weight) score = std::exp(score - log_sum);

                for (std::int64_t j = first; j <= i; ++j)
                    add(&out[at_query], weight[j - first], &v[at_key(j)]);
                lse[(i / b.row_length * b.heads + head) * b.row_length + i % b.row_length] = log_sum;
                const double delta = dot(&dout[at_query], &out[at_query]);
                for (std::int64_t j = first; j <= i; ++j) {
                    const double p = weight[j - first];
                    const double dscore = p * (dot(&dout[at_query], &v[at_key(j)]) - delta) * b.scale();
                    add(&dv[at_key(j)], p, &dout[at_query]);
                    add(&dq[at_query], dscore, &k[at_key(j)]);
                    add(&dk[at_key(j)], dscore, &q[at_query]);
                }
            }
    }
};

}  // namespace drover::test
