#include "backend/adafactor_run.h"
#include "backend/every_operation.h"
#include "backend/test_data.h"

namespace drover::test {
namespace {

// Elements for several tasks, and not a multiple of any vector length.
constexpr std::int64_t rows = 313, width = 1003;

/// Three steps of Adafactor on a matrix and a vector.
std::vector<OwnedTensor> run_adafactor(Workbench& bench, DType dtype, bool with_master) {
    AdafactorRun run(bench);
    run.add(random_normal(dtype, {rows, width}, 1), dtype, 0.1, with_master);
    run.add(random_normal(dtype, {width}, 2), dtype, 0, with_master);
    for (int step = 1; step <= 3; ++step) {
        run.set_gradient(0, random_normal(dtype, {rows, width}, static_cast<unsigned>(10 + step), step));
        run.set_gradient(1, random_normal(dtype, {width}, static_cast<unsigned>(20 + step), step));
        run.step(0.01, step, 0.7);
    }
    std::vector<OwnedTensor> result;
    for (const std::size_t leaf : {0, 1})
        for (const Tensor& tensor :
             {run[leaf].param, run[leaf].master, run[leaf].rows, run[leaf].columns, run[leaf].means})
            if (tensor) result.push_back(bench.get(tensor));
    return result;
}

template <class Operation>
std::vector<OwnedTensor> run_moment_update(Workbench& bench, DType dtype) {
    const OwnedTensor moment = random_normal(dtype, {rows, width}, 3, 0.01, 0.2);
    const MomentLeaf leaves[] = {{.param = bench.put(random_normal(dtype, {rows, width}, 1)),
                                  .gradient = bench.put(random_normal(dtype, {rows, width}, 2)),
                                  .moment = bench.put(moment),
                                  .weight_decay = 0.1f}};
    bench.run(Operation{.leaves = leaves, .scalars = step_scalars(bench, 0.01, 2, 0.7)});
    std::vector<OwnedTensor> result;
    result.push_back(bench.get(leaves[0].param));
    result.push_back(bench.get(leaves[0].moment));
    return result;
}

}  // namespace

void add_optimizer_operations(std::vector<OperationCase>& cases, const std::vector<DType>& types) {
    const auto add = [&](std::string name, DType dtype, auto run) {
        cases.push_back({std::move(name) + " " + std::string(name_of(dtype)), dtype, run});
    };
    for (DType dtype : types) {
        add("adafactor", dtype, [=](Workbench& bench) { return run_adafactor(bench, dtype, false); });
        add("sgd", dtype, [=](Workbench& bench) { return run_moment_update<Sgd>(bench, dtype); });
        add("adagrad", dtype, [=](Workbench& bench) { return run_moment_update<Adagrad>(bench, dtype); });
        add("rmsprop", dtype, [=](Workbench& bench) { return run_moment_update<Rmsprop>(bench, dtype); });
        if (dtype != DType::f32)
            add("adafactor with master copy", dtype,
                [=](Workbench& bench) { return run_adafactor(bench, dtype, true); });
    }
}

}  // namespace drover::test
