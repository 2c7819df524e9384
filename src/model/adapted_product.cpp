#include "model/adapted_product.h"

#include "core/counter_rng.h"
#include "core/range.h"
#include "model/config.h"

namespace drover {
namespace {

/// The rows of each leaf of a matrix on this rank.
std::vector<std::int64_t> leaf_rows(const BlockShape& shape, AdaptedMatrix matrix, const Tensor& weight) {
    switch (matrix) {
        case AdaptedMatrix::qkv:
            return {shape.query_columns(), shape.key_value_columns(), shape.key_value_columns()};
        case AdaptedMatrix::gate_up:
            return {shape.ffn, shape.ffn};
        default:
            return {weight.size(0)};
    }
}

/// Adds to c instead of overwriting it.
Gemm added(Gemm product) {
    product.accumulate = true;
    return product;
}

}  // namespace

AdaptedProduct::AdaptedProduct(const BlockContext& context, UnitTensors weights,
                               const BlockActivations& activations, BlockStorage::Index weight, int block)
    : c_(context),
      w_(weights),
      a_(activations),
      storages_(adapter_storages(weight)),
      matrix_(adapted_matrix(weight)),
      block_(block) {}

std::vector<AdaptedProduct::Part> AdaptedProduct::parts() const {
    std::vector<Part> parts;
    const std::vector<std::int64_t> rows = leaf_rows(c_.shape, matrix_, weight());
    std::int64_t row = 0, rank = 0;
    for (std::size_t i = 0; i < rows.size(); ++i) {
        const BlockStorage::Index storage = storages_.b[i];
        const Tensor& b = w_[storage];
        const std::int64_t own_ranks = b ? b.size(1) : 0;
        parts.push_back({.rows = {row, rows[i]},
                         .b = b,
                         .ranks = {rank, own_ranks},
                         .scale = c_.adapters->scale(block_, storage),
                         .b_storage = storage});
        row += rows[i];
        rank += own_ranks;
    }
    return parts;
}

void AdaptedProduct::scale_parts(const std::vector<Part>& parts, const Tensor& t) const {
    bool same = true;
    for (const Part& part : parts) same &= !part.b || part.scale == parts[0].scale;
    if (same && parts[0].b) {
        if (parts[0].scale != 1) c_.run(Scale{.x = t, .factor = parts[0].scale});
        return;
    }
    for (const Part& part : parts)
        if (part.b && part.scale != 1)
            c_.run(Scale{.x = t.columns(part.ranks.begin, part.ranks.count), .factor = part.scale});
}

bool AdaptedProduct::drops() const {
    return c_.adapters->dropout > 0 && c_.batch.noise;
}

void AdaptedProduct::drop(const Tensor& x, const Tensor& y) const {
    const TokenNoise& noise = *c_.batch.noise;
    const int ranks = c_.parallel.axis().size(), rank = c_.parallel.axis().rank();
    Range columns{0, x.size(1)};  // this rank's, among all
    std::int64_t all = x.size(1);
    if (matrix_ == AdaptedMatrix::attention_output) {
        all = c_.config.query_columns();
        columns.begin = rank * x.size(1);
    } else if (matrix_ == AdaptedMatrix::down) {
        all = c_.config.intermediate_size;
        columns = split_range(all, ranks, rank);
    }
    std::uint64_t name = leaf_hash("lora_dropout");
    for (const std::uint64_t part :
         {static_cast<std::uint64_t>(matrix_), static_cast<std::uint64_t>(block_), noise.micro_batch})
        name = philox_stream(name, part);
    c_.run(DropElements{.x = x,
                        .y = y,
                        .scalars = noise.scalars,
                        .first_row = noise.first_token,
                        .first_column = columns.begin,
                        .columns = all,
                        .rate = c_.adapters->dropout,
                        .seed = noise.seed,
                        .leaf = name});
}

Tensor AdaptedProduct::adapter_input(const Tensor& x) const {
    if (!drops()) return x;
    const Tensor dropped = c_.scratch.dropped.rows(0, x.numel()).view(x.shape());
    drop(x, dropped);
    return dropped;
}

void AdaptedProduct::forward(const Tensor& x, const Tensor& y, const Tensor& bias) const {
    if (!has_adapters()) return c_.run(Gemm::forward(x, weight(), y, bias));
    const std::vector<Part> parts = this->parts();
    const Tensor& t = a_.adapted(matrix_);  // [N,R]
    c_.run(Gemm::forward(adapter_input(x), a(), t));
    scale_parts(parts, t);
    for (const Part& part : parts) {
        // Without an adapter, a product without depth: the bias, or zeros.
        const Tensor b = part.b ? part.b : weight().rows(part.rows.begin, part.rows.count).columns(0, 0);
        c_.run(Gemm::forward(t.columns(part.ranks.begin, part.ranks.count), b,
                             y.columns(part.rows.begin, part.rows.count),
                             bias ? bias.rows(part.rows.begin, part.rows.count) : Tensor()));
    }
    c_.run(added(Gemm::forward(x, weight(), y)));
}

void AdaptedProduct::data_gradient(const Tensor& dy, const Tensor& dx) const {
    if (!has_adapters()) return c_.run(Gemm::data_gradient(dy, weight(), dx));
    const std::vector<Part> parts = this->parts();
    const Tensor dt = c_.scratch.adapted_gradient(a_.adapted(matrix_).shape());  // [N,R]
    for (const Part& part : parts)
        if (part.b)
            c_.run(Gemm::data_gradient(dy.columns(part.rows.begin, part.rows.count), part.b,
                                       dt.columns(part.ranks.begin, part.ranks.count)));
    scale_parts(parts, dt);
    c_.run(Gemm::data_gradient(dt, a(), dx));
    if (drops()) drop(dx, dx);
    c_.run(added(Gemm::data_gradient(dy, weight(), dx)));
}

void AdaptedProduct::adapter_gradients(const UnitGradients& g, const Tensor& dy, const Tensor& x) const {
    if (!has_adapters()) return;
    const Tensor& t = a_.adapted(matrix_);  // [N,R]
    for (const Part& part : parts())
        if (part.b)
            c_.run(Gemm::weight_gradient(dy.columns(part.rows.begin, part.rows.count),
                                         t.columns(part.ranks.begin, part.ranks.count),
                                         g.tensors[part.b_storage], g.accumulate));
    const Tensor dt = c_.scratch.adapted_gradient(t.shape());
    c_.run(Gemm::weight_gradient(dt, adapter_input(x), g.tensors[storages_.a], g.accumulate));
}

void AdaptedProduct::weight_gradients(const UnitGradients& g, const Tensor& dy, const Tensor& x,
                                      BlockStorage::Index bias) const {
    if (const Tensor& dweight = g.tensors[storages_.weight])
        c_.run(Gemm::weight_gradient(dy, x, dweight, g.accumulate));
    if (const Tensor& dbias = g.tensors[bias])
        c_.run(BiasGradient{.dy = dy, .dbias = dbias, .accumulate = g.accumulate});
}

}  // namespace drover
