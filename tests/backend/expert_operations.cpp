#include "backend/every_operation.h"
#include "backend/test_data.h"

namespace drover::test {
namespace {

// Elements for several tasks, and not a multiple of any vector length.
constexpr std::int64_t tokens = 131, experts = 7, chosen = 2, rows = tokens * chosen, width = 1003;

std::vector<OwnedTensor> read(Workbench& bench, std::initializer_list<Tensor> tensors) {
    std::vector<OwnedTensor> result;
    for (const Tensor& tensor : tensors) result.push_back(bench.get(tensor));
    return result;
}

/// Zeros, for operations that add to their output.
Tensor zeros(Workbench& bench, DType dtype, const Shape& shape) {
    const Tensor tensor = bench.make(dtype, shape);
    bench.run(Fill{.x = tensor});
    return tensor;
}

std::vector<OwnedTensor> run_router(Workbench& bench, DType dtype) {
    const Router router{.logits = bench.put(random_normal(DType::f32, {tokens, experts}, 1)),
                        .counts = bench.put(random_integers({tokens}, 2, 0, 2)),
                        .probabilities = bench.make(DType::f32, {tokens, experts}),
                        .experts = bench.make(DType::i32, {tokens, chosen}),
                        .weights = bench.make(DType::f32, {tokens, chosen}),
                        .choices = zeros(bench, DType::f64, {chosen, experts}),
                        .probability_sums = zeros(bench, DType::f64, {experts}),
                        .chosen = chosen};
    bench.run(router);
    const BalanceLoss loss{.choices = router.choices,
                           .probability_sums = router.probability_sums,
                           .loss = bench.make(DType::f64, {1}),
                           .balance = bench.make(DType::f32, {experts}),
                           .coefficient = 0.02};
    bench.run(loss);
    const Tensor dlogits = bench.make(dtype, {tokens, experts});
    bench.run(RouterBackward{.probabilities = router.probabilities,
                             .experts = router.experts,
                             .weights = router.weights,
                             .dweights = bench.put(random_normal(DType::f32, {tokens, chosen}, 3)),
                             .counts = router.counts,
                             .balance = loss.balance,
                             .dlogits = dlogits});
    return read(bench, {router.probabilities, router.experts, router.weights, router.choices,
                        router.probability_sums, loss.loss, loss.balance, dlogits});
}

std::vector<OwnedTensor> run_expert_rows(Workbench& bench, DType dtype) {
    const SortByExpert sort{.experts = bench.put(random_integers({tokens, chosen}, 1, 0, experts)),
                            .offsets = bench.make(DType::i32, {experts + 1}),
                            .row_of_slot = bench.make(DType::i32, {rows}),
                            .slot_of_row = bench.make(DType::i32, {rows})};
    bench.run(sort);
    const Tensor expert_rows = bench.make(dtype, {rows, width}), y = bench.make(dtype, {tokens, width});
    bench.run(TokensToRows{.x = bench.put(random_normal(dtype, {tokens, width}, 2)),
                           .slot_of_row = sort.slot_of_row,
                           .rows = expert_rows});
    const Tensor weights = bench.put(random_normal(DType::f32, {tokens, chosen}, 3));
    bench.run(RowsToTokens{.rows = expert_rows, .row_of_slot = sort.row_of_slot, .weights = weights, .y = y});
    const WeightRows weighted{.activated = bench.put(random_normal(dtype, {rows, width}, 4)),
                              .dactivated = bench.put(random_normal(dtype, {rows, width}, 5)),
                              .dy = bench.put(random_normal(dtype, {rows, width}, 6)),
                              .slot_of_row = sort.slot_of_row,
                              .weights = weights,
                              .dweights = bench.make(DType::f32, {tokens, chosen})};
    bench.run(weighted);
    return read(bench, {sort.offsets, sort.row_of_slot, sort.slot_of_row, expert_rows, y, weighted.dactivated,
                        weighted.dy, weighted.dweights});
}

}  // namespace

void add_expert_operations(std::vector<OperationCase>& cases, const std::vector<DType>& types) {
    for (DType dtype : types) {
        const std::string name(name_of(dtype));
        cases.push_back(
            {"router " + name, dtype, [=](Workbench& bench) { return run_router(bench, dtype); }});
        cases.push_back(
            {"expert_rows " + name, dtype, [=](Workbench& bench) { return run_expert_rows(bench, dtype); }});
    }
}

}  // namespace drover::test
