#include "model/adapted_product.h"

#include "model/adapter_dropout.h"
#include "model/config.h"

namespace drover {
namespace {

/// The columns of y that each leaf of a matrix makes on this rank.
std::vector<std::int64_t> leaf_columns(const BlockShape& shape, AdaptedMatrix matrix) {
    switch (matrix) {
        case AdaptedMatrix::qkv:
            return {shape.query_columns(), shape.key_value_columns(), shape.key_value_columns()};
        case AdaptedMatrix::gate_up:
            return {shape.ffn, shape.ffn};
        default:
            return {shape.hidden};
    }
}

}  // namespace

AdaptedProduct::AdaptedProduct(const BlockContext& context, UnitTensors weights,
                               const BlockActivations& activations, BlockStorage::Index weight, int block,
                               const Tensor& copy)
    : c_(context),
      w_(weights),
      a_(activations),
      storages_(adapter_storages(weight)),
      matrix_(adapted_matrix(weight)),
      block_(block),
      weight_(copy ? copy : weights[weight]),
      product_(context, activations, weight, weight_) {}

std::vector<AdaptedProduct::Part> AdaptedProduct::parts() const {
    std::vector<Part> parts;
    std::int64_t column = 0, rank = 0;
    for (const std::int64_t columns : leaf_columns(c_.shape, matrix_)) {
        const std::size_t i = parts.size();
        const BlockStorage::Index storage = storages_.b[i],
                                  lengths = storages_.has_experts() ? storage : storages_.magnitudes[i];
        const Tensor& b = w_[storage];
        const std::int64_t own_ranks = b ? b.size(1) : 0;
        parts.push_back({.rows = {column, columns},
                         .ranks = {rank, own_ranks},
                         .b = b,
                         .magnitudes = storages_.has_experts() ? Tensor() : w_[lengths],
                         .b_storage = storage,
                         .magnitude_storage = lengths,
                         .scale = b ? c_.adapters->scale(block_, storage) : 1});
        column += columns;
        rank += own_ranks;
    }
    return parts;
}

void AdaptedProduct::scale_parts(const std::vector<Part>& parts, const Tensor& t) const {
    bool same = true;
    for (const Part& part : parts) same &= static_cast<bool>(part.b) && part.scale == parts[0].scale;
    if (same && parts[0].scale != 1) c_.run(Scale{.x = t, .factor = parts[0].scale});
    if (same) return;
    for (const Part& part : parts)
        if (part.scale != 1) c_.run(Scale{.x = part.of_t(t), .factor = part.scale});
}

// ------------------------------------------------------------------------------------------------- dropout

bool AdaptedProduct::drops() const {
    return adapters_drop(c_);
}

void AdaptedProduct::drop(const Tensor& x, const Tensor& y) const {
    const int ranks = c_.parallel.axis().size(), rank = c_.parallel.axis().rank();
    std::int64_t first_column = 0, columns = x.size(1);
    if (matrix_ == AdaptedMatrix::attention_output) {
        columns = c_.config.query_columns();
        first_column = rank * x.size(1);
    } else if (matrix_ == AdaptedMatrix::down) {
        columns = c_.config.intermediate_size;
        first_column = split_range(columns, ranks, rank).begin;
    }
    const bool slots = storages_.has_experts();
    drop_adapter_input(c_, block_, storages_.weight,
                       {.x = x,
                        .y = y,
                        .number_of_row = slots ? a_.slot_of_row : Tensor(),
                        .first_row = c_.batch.noise->first_token * (slots ? c_.shape.slots : 1),
                        .first_column = first_column,
                        .columns = columns});
}

Tensor AdaptedProduct::adapter_input(const Tensor& x) const {
    if (!drops()) return x;
    const Tensor dropped = c_.scratch.dropped.rows(0, x.numel()).view(x.shape());
    drop(x, dropped);
    return dropped;
}

// -------------------------------------------------------------------------------------------------- forward

void AdaptedProduct::start_without_adapter(const Part& part, const Tensor& y, const Tensor& bias) const {
    if (!bias) return c_.run(Fill{.x = part.of(y), .value = 0});
    const Tensor nothing = weight_.rows(part.rows.begin, part.rows.count).columns(0, 0);  // [rows,0]
    c_.run(Gemm::forward(a_.adapted(matrix_).columns(0, 0), nothing, part.of(y), part.of_vector(bias)));
}

void AdaptedProduct::forward(const Tensor& x, const Tensor& y, const Tensor& bias) const {
    if (!has_adapters()) return product_.forward(x, y, bias, false);
    const std::vector<Part> parts = this->parts();
    const Tensor& t = a_.adapted(matrix_);  // [N,R]
    multiply(Use::forward, adapter_input(x), a(), t, false);
    scale_parts(parts, t);
    for (const Part& part : parts) {
        if (!part.b)
            start_without_adapter(part, y, bias);
        else if (bias && !part.magnitudes)
            c_.run(Gemm::forward(part.of_t(t), part.b, part.of(y), part.of_vector(bias)));
        else
            multiply(Use::forward, part.of_t(t), part.b, part.of(y), false);
    }
    product_.forward(x, y, {}, true);
    for (const Part& part : parts)
        if (part.magnitudes) {
            make_factors(part);
            c_.run(ScaleColumns{
                .x = part.of(y), .y = part.of(y), .factors = factors(part), .bias = part.of_vector(bias)});
        }
}

// ----------------------------------------------------------------------------------------------------- DoRA

Tensor AdaptedProduct::factors(const Part& part) const {
    return part.of_vector(a_.adapted_lengths(matrix_));
}

void AdaptedProduct::make_factors(const Part& part) const {
    const std::int64_t rows = part.rows.count, rank = part.ranks.count;
    std::int64_t next = 0;
    const auto room = [&](const Shape& shape) {
        next += shape.numel();
        return c_.scratch.row_lengths.rows(next - shape.numel(), shape.numel()).view(shape);
    };
    const Tensor products = room(Shape{rows, rank}), gram = room(Shape{rank, rank}),
                 squares = room(Shape{rows});
    const Tensor own_a = a().rows(part.ranks.begin, rank), weight = weight_.rows(part.rows.begin, rows);
    c_.run(Gemm::forward(weight, own_a, products));
    c_.run(Gemm::forward(own_a, own_a, gram));
    c_.run(AdaptedSquares{.weight = weight,
                          .b = part.b,
                          .products = products,
                          .gram = gram,
                          .squares = squares,
                          .scale = part.scale});
    // These matrices' columns are spread over the ranks.
    if (matrix_ == AdaptedMatrix::attention_output || matrix_ == AdaptedMatrix::down)
        c_.parallel.axis().all_reduce(c_.run.stream, squares, Reduction::sum);
    c_.run(MagnitudeFactors{.magnitudes = part.magnitudes, .squares = squares, .factors = factors(part)});
}

Tensor AdaptedProduct::begin_backward(const UnitGradients& g, const Tensor& dy, BackwardPart of_backward,
                                      const Tensor& y, const Tensor& bias, const Tensor& scaled) const {
    bool has_magnitudes = false;
    const std::vector<Part> parts = this->parts();
    for (const Part& part : parts)
        if (part.magnitudes) {
            has_magnitudes = true;
            c_.run(MagnitudeGradient{.dy = part.of(dy),
                                     .y = part.of(y),
                                     .bias = part.of_vector(bias),
                                     .magnitudes = part.magnitudes,
                                     .dmagnitudes = g.tensors[part.magnitude_storage],
                                     .accumulate = g.accumulate});
            c_.run(ScaleColumns{.x = part.of(dy), .y = part.of(scaled), .factors = factors(part)});
        }
    const Tensor result = has_magnitudes ? scaled : dy;
    begin_backward(g, result, of_backward);
    return result;
}

// ------------------------------------------------------------------------------------------------- backward

void AdaptedProduct::begin_backward(const UnitGradients& g, const Tensor& dy,
                                    BackwardPart of_backward) const {
    product_.begin_backward(dy, of_backward, is_trained(g));
    adapters_begin_backward(dy);
}

void AdaptedProduct::begin_weight_gradient(const UnitGradients& g, const Tensor& dy) const {
    if (is_trained(g)) product_.begin_backward(dy, BackwardPart::weights, true);
}

void AdaptedProduct::adapters_begin_backward(const Tensor& dy) const {
    if (!has_adapters()) return;
    const std::vector<Part> parts = this->parts();
    const Tensor dt = c_.scratch.adapted_gradient(a_.adapted(matrix_).shape());  // [N,R]
    for (const Part& part : parts)
        if (part.b) multiply(Use::data_gradient, part.of(dy), part.b, part.of_t(dt), false);
    scale_parts(parts, dt);
}

void AdaptedProduct::data_gradient(const Tensor& dy, const Tensor& dx) const {
    if (has_adapters()) {
        const Tensor dt = c_.scratch.adapted_gradient(a_.adapted(matrix_).shape());
        multiply(Use::data_gradient, dt, a(), dx, false);
        if (drops()) drop(dx, dx);
    }
    product_.data_gradient(dy, dx, has_adapters());
}

void AdaptedProduct::adapter_gradients(const UnitGradients& g, const Tensor& dy, const Tensor& x) const {
    if (!has_adapters()) return;
    const Tensor& t = a_.adapted(matrix_);  // [N,R]
    for (const Part& part : parts())
        if (part.b)
            multiply(Use::weight_gradient, part.of(dy), part.of_t(t), g.tensors[part.b_storage],
                     g.accumulate);
    multiply(Use::weight_gradient, c_.scratch.adapted_gradient(t.shape()), adapter_input(x),
             g.tensors[storages_.a], g.accumulate);
}

void AdaptedProduct::weight_gradient(const UnitGradients& g, const Tensor& dy, const Tensor& x) const {
    if (const Tensor& dweight = g.tensors[storages_.weight])
        product_.weight_gradient(dy, x, dweight, g.accumulate);
}

}  // namespace drover
