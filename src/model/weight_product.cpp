#include "model/weight_product.h"

namespace drover {
namespace {

/// Whether the ranks of tensor parallelism hold other columns of a matrix' input; otherwise of its output.
bool splits_input(AdaptedMatrix matrix) {
    return matrix == AdaptedMatrix::attention_output || matrix == AdaptedMatrix::down;
}

/// Calls use(weight, matrix) for the matrices that the block has. The router's product is never in FP8.
template <class Use>
void for_each_weight(UnitTensors weights, const Use& use) {
    for (const AdapterStorages& storages : adapter_storages())
        if (const Tensor& weight = weights[storages.weight];
            weight && storages.weight != BlockStorage::router)
            use(weight, adapted_matrix(storages.weight));
}

/// Quantises a matrix, or `groups` of them one below the other: with `maximum`, if that is given, and one
/// scale, otherwise in such blocks.
void quantise_matrix(const Runner& run, const Tensor& x, const Tensor& maximum, Fp8Scales blocks,
                     const Fp8Matrix& y, const Fp8Matrix& transposed, std::int64_t groups,
                     const Tensor& offsets) {
    if (maximum)
        run(Quantise{.x = x,
                     .maximum = maximum,
                     .y = y.numbers,
                     .transposed = transposed.numbers,
                     .scale = y ? y.scales : transposed.scales,
                     .groups = groups,
                     .offsets = offsets});
    else
        run(QuantiseBlocks{.x = x,
                           .blocks = blocks,
                           .y = y.numbers,
                           .scales = y.scales,
                           .transposed = transposed.numbers,
                           .transposed_scales = transposed.scales,
                           .groups = groups,
                           .offsets = offsets});
}

}  // namespace

WeightProduct::WeightProduct(const BlockContext& context, const BlockActivations& activations,
                             BlockStorage::Index index, const Tensor& weight)
    : c_(context), a_(activations), index_(index), matrix_(adapted_matrix(index)), weight_(weight) {}

bool WeightProduct::has_experts() const {
    return index_ == BlockStorage::experts_gate_up || index_ == BlockStorage::experts_down;
}

Scope WeightProduct::experts_scope(GroupedGemm::Use use) const {
    return c_.run.scope(use == GroupedGemm::Use::forward ? "gmm_forward" : "gmm_backward");
}

std::int64_t WeightProduct::summed_rows(std::int64_t rows) const {
    return has_experts() ? expert_columns(rows, c_.shape.experts) : fp8_rows(rows, a_.fp8_recipe);
}

void WeightProduct::multiply(GroupedGemm::Use use, const Tensor& left, const Tensor& right,
                             const Tensor& result, bool accumulate) const {
    using Use = GroupedGemm::Use;
    if (has_experts()) {
        const Scope scope = experts_scope(use);
        return c_.run(GroupedGemm{.use = use,
                                  .a = left,
                                  .b = right,
                                  .c = result,
                                  .offsets = a_.expert_offsets,
                                  .accumulate = accumulate});
    }
    Gemm product = use == Use::forward         ? Gemm::forward(left, right, result)
                   : use == Use::data_gradient ? Gemm::data_gradient(left, right, result)
                                               : Gemm::weight_gradient(left, right, result, false);
    product.accumulate = accumulate;
    c_.run(product);
}

void WeightProduct::forward(const Tensor& x, const Tensor& y, const Tensor& bias, bool accumulate) const {
    if (!in_fp8()) {
        if (!bias) return multiply(GroupedGemm::Use::forward, x, weight_, y, accumulate);
        Gemm product = Gemm::forward(x, weight_, y, bias);
        product.accumulate = accumulate;
        return c_.run(product);
    }
    const Fp8Matrix x8 = place_rows(c_.scratch.fp8.input, Fp8Operand::input, x.size(0), x.size(1));
    if (has_one_scale()) find_maximum(x, Fp8Operand::input, splits_input(matrix_));
    quantise(x, Fp8Operand::input, x8, kept_input(x.size(0), x.size(1)));
    multiply_fp8(GroupedGemm::Use::forward, x8, fp8_weight(), y, bias, accumulate);
}

void WeightProduct::begin_backward(const Tensor& dy, BackwardPart part, bool trained) const {
    if (!in_fp8()) return;
    const std::int64_t rows = dy.size(0), columns = dy.size(1);
    Fp8Matrix dy8, transposed;
    if (part != BackwardPart::weights)
        dy8 = place_rows(c_.scratch.fp8.gradient, Fp8Operand::gradient, rows, columns);
    if (part != BackwardPart::input && trained)
        transposed =
            place(c_.scratch.fp8.transposed_gradient, Fp8Operand::gradient, columns, summed_rows(rows));
    if (has_one_scale()) {
        // An expert's weight gradient has a dy of its own, with the routing weights.
        const bool is_another = part == BackwardPart::weights && transposed && has_experts();
        if (is_another) c_.run(Fill{.x = maximum(Fp8Operand::gradient), .value = 0});
        if (part != BackwardPart::weights || is_another)
            find_maximum(dy, Fp8Operand::gradient, !splits_input(matrix_));
    }
    quantise(dy, Fp8Operand::gradient, dy8, transposed);
}

void WeightProduct::data_gradient(const Tensor& dy, const Tensor& dx, bool accumulate) const {
    if (!in_fp8()) return multiply(GroupedGemm::Use::data_gradient, dy, weight_, dx, accumulate);
    const Fp8Matrix dy8 = place_rows(c_.scratch.fp8.gradient, Fp8Operand::gradient, dy.size(0), dy.size(1));
    multiply_fp8(GroupedGemm::Use::data_gradient, dy8, transposed_fp8_weight(), dx, {}, accumulate);
}

void WeightProduct::weight_gradient(const Tensor& dy, const Tensor& x, const Tensor& dweight,
                                    bool accumulate) const {
    if (!in_fp8()) return multiply(GroupedGemm::Use::weight_gradient, dy, x, dweight, accumulate);
    const std::int64_t rows = summed_rows(x.size(0));
    const Fp8Matrix dy8 = place(c_.scratch.fp8.transposed_gradient, Fp8Operand::gradient, dy.size(1), rows);
    Fp8Matrix x8 = kept_input(x.size(0), x.size(1));
    if (!x8) {
        x8 = place(c_.scratch.fp8.input, Fp8Operand::input, x.size(1), rows);
        quantise(x, Fp8Operand::input, {}, x8);
    }
    multiply_fp8(GroupedGemm::Use::weight_gradient, dy8, x8, dweight, {}, accumulate);
}

// ------------------------------------------------------------------------------------------------------ FP8

void WeightProduct::prepare_weights(const BlockContext& c, UnitTensors weights, const BlockActivations& a) {
    if (!a.fp8) return;
    c.run(Fill{.x = a.fp8.maxima(), .value = 0});
    bool any = false;
    for_each_weight(weights, [&](const Tensor& weight, AdaptedMatrix matrix) {
        if (a.fp8_copies(matrix) != nullptr) return;
        c.run(AbsoluteMaximum{.x = weight, .maximum = a.fp8.maximum(matrix, Fp8Operand::weight)});
        any = true;
    });
    if (any) c.parallel.axis().all_reduce(c.run.stream, a.fp8.weight_maxima(), Reduction::max);
}

void WeightProduct::copy_weights(const Runner& run, const TensorParallel& parallel, std::int64_t experts,
                                 UnitTensors weights, const Fp8Copies& copies, const Fp8Room& room) {
    const Fp8Table& table = copies.table;
    if (table) {
        run(Fill{.x = table.maxima(), .value = 0});
        for_each_weight(weights, [&](const Tensor& weight, AdaptedMatrix matrix) {
            if (copies.has(matrix))
                run(AbsoluteMaximum{.x = weight, .maximum = table.maximum(matrix, Fp8Operand::weight)});
        });
        parallel.axis().all_reduce(run.stream, table.weight_maxima(), Reduction::max);
    }
    for_each_weight(weights, [&](const Tensor& weight, AdaptedMatrix matrix) {
        if (!copies.has(matrix)) return;
        const bool of_experts = experts > 0 && matrix >= AdaptedMatrix::gate_up;
        const std::int64_t matrices = of_experts ? experts : 1;
        Fp8Matrix transposed;  // only for its scales, of which squares have a table
        if (!table) {
            transposed = room.matrix(Fp8Scales::one, matrices * weight.size(1), weight.size(0) / matrices);
            transposed.scales = copies.scales_of_transpose(matrix);
        }
        quantise_matrix(run, weight, table.maximum(matrix, Fp8Operand::weight), Fp8Scales::squares,
                        copies.weight(matrix), transposed, matrices, {});
    });
}

Fp8Matrix WeightProduct::fp8_weight() const {
    if (const Fp8Copies* kept = a_.fp8_copies(matrix_)) return kept->weight(matrix_);
    const Fp8Matrix made = place(c_.scratch.fp8.weight, Fp8Operand::weight, weight_.size(0), weight_.size(1));
    quantise(weight_, Fp8Operand::weight, made, {});
    return made;
}

Fp8Matrix WeightProduct::transposed_fp8_weight() const {
    const Fp8Room& room = c_.scratch.fp8.weight;
    const std::int64_t rows = experts() * weight_.size(1), columns = weight_.size(0) / experts();
    if (const Fp8Copies* kept = a_.fp8_copies(matrix_)) {
        Fp8Matrix turned = room.matrix(Fp8Scales::one, rows, columns);
        c_.run(Fp8Transpose{.x = kept->weight(matrix_).numbers, .y = turned.numbers, .groups = experts()});
        turned.scales = kept->scales_of_transpose(matrix_);
        return turned;
    }
    const Fp8Matrix made = place(room, Fp8Operand::weight, rows, columns);
    quantise(weight_, Fp8Operand::weight, {}, made);
    return made;
}

Fp8Matrix WeightProduct::kept_input(std::int64_t rows, std::int64_t columns) const {
    const Fp8Room& room = a_.fp8_input(matrix_);
    return room ? place(room, Fp8Operand::input, columns, summed_rows(rows)) : Fp8Matrix();
}

Fp8Matrix WeightProduct::place(const Fp8Room& room, Fp8Operand operand, std::int64_t rows,
                               std::int64_t columns) const {
    Fp8Matrix made =
        room.matrix(scales_of(operand), rows, columns, operand == Fp8Operand::weight ? experts() : 1);
    if (has_one_scale()) made.scales = a_.fp8.scale(matrix_, operand);
    return made;
}

Fp8Matrix WeightProduct::place_rows(const Fp8Room& room, Fp8Operand operand, std::int64_t rows,
                                    std::int64_t columns) const {
    return place(room, operand, rows_of_operand(scales_of(operand), rows), columns);
}

Tensor WeightProduct::maximum(Fp8Operand operand) const {
    return a_.fp8.maximum(matrix_, operand);
}

bool WeightProduct::has_maximum(Fp8Operand operand) const {
    if (operand == Fp8Operand::input)
        return matrix_ != AdaptedMatrix::attention_output &&
               !(matrix_ == AdaptedMatrix::gate_up && c_.jitters());
    // DoRA scales the gradient afterwards.
    return matrix_ == AdaptedMatrix::gate_up && !c_.scratch.dgate_up;
}

void WeightProduct::find_maximum(const Tensor& x, Fp8Operand operand, bool ranks_differ) const {
    const bool found = has_maximum(operand);
    if (!found) c_.run(AbsoluteMaximum{.x = x, .maximum = maximum(operand)});
    // What a norm has made is only this rank's share of the tokens.
    if (found && operand == Fp8Operand::input) ranks_differ |= c_.parallel.splits_tokens();
    if (ranks_differ) c_.parallel.axis().all_reduce(c_.run.stream, maximum(operand), Reduction::max);
}

void WeightProduct::quantise(const Tensor& x, Fp8Operand operand, const Fp8Matrix& y,
                             const Fp8Matrix& transposed) const {
    if (!y && !transposed) return;
    const bool is_weight = operand == Fp8Operand::weight;
    quantise_matrix(c_.run, x, maximum(operand), scales_of(operand), y, transposed, is_weight ? experts() : 1,
                    has_experts() && !is_weight ? a_.expert_offsets : Tensor());
}

void WeightProduct::multiply_fp8(GroupedGemm::Use use, const Fp8Matrix& a, const Fp8Matrix& b,
                                 const Tensor& c, const Tensor& bias, bool accumulate) const {
    using Use = GroupedGemm::Use;
    const bool fast = use == Use::forward && has_one_scale();
    const Fp8Scales of_a = scales_of(Fp8Operand::input),  // also of gradients
        of_b = scales_of(use == Use::weight_gradient ? Fp8Operand::input : Fp8Operand::weight);
    if (has_experts()) {
        const Scope scope = experts_scope(use);
        return c_.run(GroupedFp8Gemm{.use = use,
                                     .a = a.numbers,
                                     .b = b.numbers,
                                     .c = c,
                                     .scale_a = a.scales,
                                     .scale_b = b.scales,
                                     .offsets = a_.expert_offsets,
                                     .accumulate = accumulate,
                                     .fast = fast,
                                     .scales_a = of_a,
                                     .scales_b = of_b});
    }
    c_.run(Fp8Gemm{.a = a.numbers,
                   .b = b.numbers,
                   .c = c,
                   .scale_a = a.scales,
                   .scale_b = b.scales,
                   .bias = bias,
                   .accumulate = accumulate,
                   .fast = fast,
                   .scales_a = of_a,
                   .scales_b = of_b});
}

}  // namespace drover
