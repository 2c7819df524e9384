#include "model/weight_product.h"

namespace drover {
namespace {

/// Whether the ranks of tensor parallelism hold other columns of a matrix' input; otherwise of its output.
bool splits_input(AdaptedMatrix matrix) {
    return matrix == AdaptedMatrix::attention_output || matrix == AdaptedMatrix::down;
}

/// Calls use(weight, matrix) for the matrices that the block has.
template <class Use>
void for_each_weight(UnitTensors weights, const Use& use) {
    for (const AdapterStorages& storages : adapter_storages())
        if (const Tensor& weight = weights[storages.weight]) use(weight, adapted_matrix(storages.weight));
}

}  // namespace

WeightProduct::WeightProduct(const BlockContext& context, const BlockActivations& activations,
                             BlockStorage::Index index, const Tensor& weight)
    : c_(context), a_(activations), index_(index), matrix_(adapted_matrix(index)), weight_(weight) {}

bool WeightProduct::has_experts() const {
    return index_ == BlockStorage::experts_gate_up || index_ == BlockStorage::experts_down;
}

bool WeightProduct::in_fp8() const {
    return static_cast<bool>(a_.fp8);
}

Scope WeightProduct::experts_scope(GroupedGemm::Use use) const {
    return c_.run.scope(use == GroupedGemm::Use::forward ? "gmm_forward" : "gmm_backward");
}

std::int64_t WeightProduct::summed_rows(std::int64_t rows) const {
    return has_experts() ? expert_columns(rows, c_.shape.experts) : fp8_rows(rows);
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
    const Tensor x8 = Fp8Scratch::matrix(c_.scratch.fp8.input, x.size(0), x.size(1));
    find_maximum(x, Fp8Operand::input, splits_input(matrix_));
    quantise(x, Fp8Operand::input, x8, kept_input(x.size(0), x.size(1)));
    multiply_fp8(GroupedGemm::Use::forward, x8, fp8_weight(), y, bias, accumulate);
}

void WeightProduct::begin_backward(const Tensor& dy, BackwardPart part, bool trained) const {
    if (!in_fp8()) return;
    const std::int64_t rows = dy.size(0), columns = dy.size(1);
    Tensor dy8, transposed;
    if (part != BackwardPart::weights) dy8 = Fp8Scratch::matrix(c_.scratch.fp8.gradient, rows, columns);
    if (part != BackwardPart::input && trained)
        transposed = Fp8Scratch::matrix(c_.scratch.fp8.transposed_gradient, columns, summed_rows(rows));
    // An expert's weight gradient has a dy of its own, with the routing weights.
    const bool is_another = part == BackwardPart::weights && transposed && has_experts();
    if (is_another) c_.run(Fill{.x = maximum(Fp8Operand::gradient), .value = 0});
    if (part != BackwardPart::weights || is_another)
        find_maximum(dy, Fp8Operand::gradient, !splits_input(matrix_));
    quantise(dy, Fp8Operand::gradient, dy8, transposed);
}

void WeightProduct::data_gradient(const Tensor& dy, const Tensor& dx, bool accumulate) const {
    if (!in_fp8()) return multiply(GroupedGemm::Use::data_gradient, dy, weight_, dx, accumulate);
    const Tensor dy8 = Fp8Scratch::matrix(c_.scratch.fp8.gradient, dy.size(0), dy.size(1));
    multiply_fp8(GroupedGemm::Use::data_gradient, dy8, transposed_fp8_weight(), dx, {}, accumulate);
}

void WeightProduct::weight_gradient(const Tensor& dy, const Tensor& x, const Tensor& dweight,
                                    bool accumulate) const {
    if (!in_fp8()) return multiply(GroupedGemm::Use::weight_gradient, dy, x, dweight, accumulate);
    const std::int64_t rows = summed_rows(x.size(0));
    const Tensor dy8 = Fp8Scratch::matrix(c_.scratch.fp8.transposed_gradient, dy.size(1), rows);
    Tensor x8 = kept_input(x.size(0), x.size(1));
    if (!x8) {
        x8 = Fp8Scratch::matrix(c_.scratch.fp8.input, x.size(1), rows);
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
                                 UnitTensors weights, const Fp8Copies& copies) {
    const Fp8Table& table = copies.table;
    run(Fill{.x = table.maxima(), .value = 0});
    for_each_weight(weights, [&](const Tensor& weight, AdaptedMatrix matrix) {
        if (copies.has(matrix))
            run(AbsoluteMaximum{.x = weight, .maximum = table.maximum(matrix, Fp8Operand::weight)});
    });
    parallel.axis().all_reduce(run.stream, table.weight_maxima(), Reduction::max);
    for_each_weight(weights, [&](const Tensor& weight, AdaptedMatrix matrix) {
        if (!copies.has(matrix)) return;
        const bool of_experts = experts > 0 && matrix >= AdaptedMatrix::gate_up;
        run(Quantise{.x = weight,
                     .maximum = table.maximum(matrix, Fp8Operand::weight),
                     .y = copies.weight(matrix),
                     .transposed = copies.transpose(matrix),
                     .scale = table.scale(matrix, Fp8Operand::weight),
                     .groups = of_experts ? experts : 1});
    });
}

Tensor WeightProduct::fp8_weight() const {
    if (const Fp8Copies* kept = a_.fp8_copies(matrix_)) return kept->weight(matrix_);
    const Tensor made = Fp8Scratch::matrix(c_.scratch.fp8.weight, weight_.size(0), weight_.size(1));
    quantise(weight_, Fp8Operand::weight, made, {});
    return made;
}

Tensor WeightProduct::transposed_fp8_weight() const {
    if (const Fp8Copies* kept = a_.fp8_copies(matrix_)) return kept->transpose(matrix_);
    const std::int64_t matrices = has_experts() ? c_.shape.experts : 1;
    const Tensor made =
        Fp8Scratch::matrix(c_.scratch.fp8.weight, matrices * weight_.size(1), weight_.size(0) / matrices);
    quantise(weight_, Fp8Operand::weight, {}, made);
    return made;
}

Tensor WeightProduct::kept_input(std::int64_t rows, std::int64_t columns) const {
    const Tensor& room = a_.fp8_input(matrix_);
    return room ? Fp8Scratch::matrix(room, columns, fp8_rows(rows)) : room;
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

void WeightProduct::quantise(const Tensor& x, Fp8Operand operand, const Tensor& y,
                             const Tensor& transposed) const {
    if (!y && !transposed) return;
    const bool is_weight = operand == Fp8Operand::weight;
    c_.run(Quantise{.x = x,
                    .maximum = maximum(operand),
                    .y = y,
                    .transposed = transposed,
                    .scale = a_.fp8.scale(matrix_, operand),
                    .groups = has_experts() && is_weight ? c_.shape.experts : 1,
                    .offsets = has_experts() && !is_weight ? a_.expert_offsets : Tensor()});
}

void WeightProduct::multiply_fp8(GroupedGemm::Use use, const Tensor& a, const Tensor& b, const Tensor& c,
                                 const Tensor& bias, bool accumulate) const {
    using Use = GroupedGemm::Use;
    const Fp8Copies* const kept = a_.fp8_copies(matrix_);
    const Fp8Table& of_weight = kept != nullptr ? kept->table : a_.fp8;
    const Tensor of_a = a_.fp8.scale(matrix_, use == Use::forward ? Fp8Operand::input : Fp8Operand::gradient),
                 of_b = use == Use::weight_gradient ? a_.fp8.scale(matrix_, Fp8Operand::input)
                                                    : of_weight.scale(matrix_, Fp8Operand::weight);
    const bool fast = use == Use::forward;
    if (has_experts()) {
        const Scope scope = experts_scope(use);
        return c_.run(GroupedFp8Gemm{.use = use,
                                     .a = a,
                                     .b = b,
                                     .c = c,
                                     .scale_a = of_a,
                                     .scale_b = of_b,
                                     .offsets = a_.expert_offsets,
                                     .accumulate = accumulate,
                                     .fast = fast});
    }
    c_.run(Fp8Gemm{.a = a,
                   .b = b,
                   .c = c,
                   .scale_a = of_a,
                   .scale_b = of_b,
                   .bias = bias,
                   .accumulate = accumulate,
                   .fast = fast});
}

}  // namespace drover
