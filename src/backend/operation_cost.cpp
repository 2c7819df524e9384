#include "backend/operation_cost.h"

#include <algorithm>
#include <initializer_list>

namespace drover {
namespace {

/// Bytes of all that are present.
double bytes_of(std::initializer_list<Tensor> tensors) {
    double bytes = 0;
    for (const Tensor& tensor : tensors)
        if (tensor) bytes += static_cast<double>(tensor.bytes());
    return bytes;
}

OperationCost memory_bound(std::string_view name, double bytes) {
    return {.name = name, .bytes = bytes};
}

OperationCost memory_bound(std::string_view name, std::initializer_list<Tensor> read,
                           std::initializer_list<Tensor> written) {
    return memory_bound(name, bytes_of(read) + bytes_of(written));
}

std::string_view name_of_product(bool transpose_a, bool transpose_b) {
    if (transpose_a) return "gemm weight gradient";
    return transpose_b ? "gemm forward" : "gemm data gradient";
}

std::string_view name_of_use(GroupedGemm::Use use) {
    switch (use) {
        case GroupedGemm::Use::forward:
            return "expert gemm forward";
        case GroupedGemm::Use::data_gradient:
            return "expert gemm data gradient";
        default:
            return "expert gemm weight gradient";
    }
}

/// Pairs of a query and a key that it sees, over all rows and query heads.
double attended_pairs(const Sequences& sequences, std::int64_t window, std::int64_t heads) {
    const double length = static_cast<double>(sequences.row_length);
    const double seen = window > 0 ? std::min(static_cast<double>(window), length) : length;
    const double of_row = seen * (seen + 1) / 2 + (length - seen) * seen;
    return of_row * static_cast<double>(sequences.rows * heads);
}

double head_size(const Tensor& q) {
    return static_cast<double>(q.size(2));
}

/// Parameter and master copy are read and written, the gradient is read.
template <class Leaf>
double update_bytes(const Leaf& leaf) {
    return bytes_of({leaf.param, leaf.param, leaf.gradient, leaf.master, leaf.master});
}

template <class Update>
OperationCost moment_update(std::string_view name, const Update& op) {
    double bytes = 0;
    for (const MomentLeaf& leaf : op.leaves)
        bytes += update_bytes(leaf) + bytes_of({leaf.moment, leaf.moment});
    return memory_bound(name, bytes);
}

}  // namespace

OperationCost cost(const Gemm& op) {
    const double inner = static_cast<double>(op.a.size(op.transpose_a ? 0 : 1));
    return {.name = name_of_product(op.transpose_a, op.transpose_b),
            .flops = 2 * inner * static_cast<double>(op.c.numel()),
            .bytes = bytes_of({op.a, op.b, op.c, op.bias, op.accumulate ? op.c : Tensor()}),
            .arithmetic = op.a.dtype()};
}

OperationCost cost(const GroupedGemm& op) {
    const bool weight_gradient = op.use == GroupedGemm::Use::weight_gradient;
    const double columns = static_cast<double>(weight_gradient ? op.b.size(1) : op.c.size(1));
    return {.name = name_of_use(op.use),
            .flops = 2 * static_cast<double>(op.a.numel()) * columns,
            .bytes = bytes_of({op.a, op.b, op.c, op.accumulate ? op.c : Tensor()}),
            .arithmetic = op.a.dtype()};
}

OperationCost cost(const Attention& op) {
    return {.name = "attention",
            .flops = 4 * head_size(op.q) * attended_pairs(op.sequences, op.window, op.q.size(1)),
            .bytes = bytes_of({op.q, op.k, op.v, op.out, op.lse}),
            .arithmetic = op.q.dtype()};
}

OperationCost cost(const AttentionBackward& op) {
    return {.name = "attention backward",
            .flops = 10 * head_size(op.q) * attended_pairs(op.sequences, op.window, op.q.size(1)),
            .bytes = bytes_of({op.q, op.k, op.v, op.out, op.lse, op.dout, op.dq, op.dk, op.dv}),
            .arithmetic = op.q.dtype()};
}

OperationCost cost(const CachedAttention& op) {
    const std::int64_t capacity = op.key_cache.size(1);
    const std::int64_t seen = op.window > 0 ? std::min(op.window, capacity) : capacity;
    return {.name = "cached attention",
            .flops = 4 * static_cast<double>(op.q.numel()) * static_cast<double>(seen),
            .bytes = bytes_of({op.q, op.k, op.v, op.key_cache, op.value_cache, op.out}),
            .arithmetic = op.q.dtype()};
}

OperationCost cost(const BiasGradient& op) {
    return memory_bound("bias gradient", {op.dy, op.accumulate ? op.dbias : Tensor()}, {op.dbias});
}

OperationCost cost(const Embedding& op) {
    const auto rows_read =
        static_cast<double>(op.y.numel()) * static_cast<double>(size_of(op.weight.dtype()));
    return memory_bound("embedding", rows_read + bytes_of({op.ids, op.y}));
}

OperationCost cost(const EmbeddingBackward& op) {
    return memory_bound("embedding backward", {op.ids, op.dy, op.accumulate ? op.dweight : Tensor()},
                        {op.dweight});
}

OperationCost cost(const RmsNorm& op) {
    return memory_bound("norm", {op.x, op.residual_in, op.weight},
                        {op.x ? op.residual_out : Tensor(), op.y, op.rstd});
}

OperationCost cost(const RmsNormBackward& op) {
    return memory_bound("norm backward", {op.dy, op.residual_out, op.weight, op.rstd, op.dresidual_out},
                        {op.dresidual, op.dweight, op.y});
}

OperationCost cost(const Rope& op) {
    return memory_bound("rotary positions", {op.x, op.positions}, {op.x});
}

OperationCost cost(const Swiglu& op) {
    return memory_bound("swiglu", {op.gate_up}, {op.y});
}

OperationCost cost(const SwigluBackward& op) {
    return memory_bound("swiglu backward", {op.gate_up, op.dy}, {op.dgate_up, op.y});
}

OperationCost cost(const CrossEntropyStatistics& op) {
    return memory_bound("cross-entropy statistics", {op.logits, op.targets},
                        {op.max, op.sum_exp, op.target_logit, op.argmax, op.logit_sum});
}

OperationCost cost(const CrossEntropyRescale& op) {
    return memory_bound("cross-entropy rescale", {op.local_max, op.max, op.sum_exp, op.argmax},
                        {op.sum_exp, op.argmax});
}

OperationCost cost(const CrossEntropyGradient& op) {
    const Tensor replaced = op.scale ? op.logits : Tensor();
    return memory_bound("cross-entropy gradient",
                        {replaced, op.targets, op.max, op.sum_exp, op.target_logit, op.logit_sum},
                        {replaced, op.loss});
}

OperationCost cost(const JitterTokens& op) {
    return memory_bound(op.added ? "embedding noise" : "jitter", {op.x}, {op.x});
}

OperationCost cost(const Router& op) {
    return memory_bound("router", {op.logits, op.counts}, {op.probabilities, op.experts, op.weights});
}

OperationCost cost(const RouterBackward& op) {
    return memory_bound("router backward",
                        {op.probabilities, op.experts, op.weights, op.dweights, op.counts, op.balance},
                        {op.dlogits});
}

OperationCost cost(const BalanceLoss& op) {
    return memory_bound("balance loss", {op.choices, op.probability_sums}, {op.loss, op.balance});
}

OperationCost cost(const SortByExpert& op) {
    return memory_bound("sort by expert", {op.experts}, {op.offsets, op.row_of_slot, op.slot_of_row});
}

OperationCost cost(const TokensToRows& op) {
    return memory_bound("tokens to expert rows", {op.rows, op.slot_of_row}, {op.rows});
}

OperationCost cost(const RowsToTokens& op) {
    return memory_bound("expert rows to tokens", {op.rows, op.row_of_slot, op.weights}, {op.y});
}

OperationCost cost(const WeightRows& op) {
    return memory_bound("weight expert rows",
                        {op.activated, op.dactivated, op.dy, op.slot_of_row, op.weights},
                        {op.dactivated, op.dy, op.dweights});
}

OperationCost cost(const SumOfSquares& op) {
    double bytes = bytes_of({op.sums});
    for (const Tensor& tensor : op.tensors) bytes += bytes_of({tensor});
    return memory_bound("gradient norm", bytes);
}

OperationCost cost(const ClipFactor& op) {
    return memory_bound("clip factor", {op.sums}, {op.scalars});
}

OperationCost cost(const AdamW& op) {
    double bytes = 0;
    for (const AdamWLeaf& leaf : op.leaves)
        bytes += update_bytes(leaf) + 2 * bytes_of({leaf.exp_avg, leaf.exp_avg_sq});
    return memory_bound("adamw", bytes);
}

OperationCost cost(const Sgd& op) {
    return moment_update("sgd", op);
}

OperationCost cost(const Adagrad& op) {
    return moment_update("adagrad", op);
}

OperationCost cost(const Rmsprop& op) {
    return moment_update("rmsprop", op);
}

OperationCost cost(const AdafactorSums& op) {
    double bytes = 0;
    for (const AdafactorLeaf& leaf : op.leaves)
        if (leaf.rows) bytes += bytes_of({leaf.gradient, leaf.rows, leaf.columns});
    return memory_bound("adafactor sums", bytes);
}

OperationCost cost(const AdafactorFactors& op) {
    double bytes = 0;
    for (const AdafactorMatrix& matrix : op.matrices)
        bytes += 2 * bytes_of({matrix.row_sums, matrix.column_sums, matrix.row_means, matrix.column_means});
    return memory_bound("adafactor factors", bytes);
}

OperationCost cost(const AdafactorSquares& op) {
    double bytes = 0;
    for (const AdafactorLeaf& leaf : op.leaves)
        bytes += bytes_of({leaf.gradient, leaf.rows, leaf.columns, leaf.means, leaf.means});
    return memory_bound("adafactor squares", bytes);
}

OperationCost cost(const AdafactorUpdate& op) {
    double bytes = 0;
    for (const AdafactorLeaf& leaf : op.leaves)
        bytes += update_bytes(leaf) + bytes_of({leaf.rows, leaf.columns, leaf.means});
    return memory_bound("adafactor update", bytes);
}

OperationCost cost(const Fill& op) {
    return memory_bound("fill", {}, {op.x});
}

OperationCost cost(const Cast& op) {
    return memory_bound("cast", {op.from}, {op.to});
}

OperationCost cost(const Add& op) {
    return memory_bound("add", {op.into, op.x}, {op.into});
}

OperationCost cost(const Sum& op) {
    return memory_bound("sum", {op.x}, {op.out});
}

}  // namespace drover
