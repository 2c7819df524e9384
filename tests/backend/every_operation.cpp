#include "backend/every_operation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "backend/test_data.h"

namespace drover::test {
namespace {

// Elements for several tasks, and not a multiple of any vector length.
constexpr std::int64_t rows = 131, width = 1003, vocabulary = 517;

template <class... Tensors>
std::vector<OwnedTensor> read(Workbench& bench, const Tensors&... tensors) {
    std::vector<OwnedTensor> result;
    (result.push_back(bench.get(tensors)), ...);
    return result;
}

Tensor normal(Workbench& bench, DType dtype, const Shape& shape, unsigned seed, double deviation = 1) {
    return bench.put(random_normal(dtype, shape, seed, deviation));
}

std::vector<OwnedTensor> run_rms_norm(Workbench& bench, DType dtype, DType residual_dtype) {
    const Shape shape = {rows, width};
    const Tensor residual = bench.make(residual_dtype, shape), y = bench.make(dtype, shape);
    const Tensor rstd = bench.make(DType::f32, {rows}), weight = normal(bench, residual_dtype, {width}, 3);
    bench.run(RmsNorm{.x = normal(bench, dtype, shape, 1),
                      .residual_in = normal(bench, residual_dtype, shape, 2),
                      .residual_out = residual,
                      .weight = weight,
                      .y = y,
                      .rstd = rstd,
                      .eps = 1e-5f});
    const Tensor dresidual = bench.make(residual_dtype, shape), dweight = bench.make(residual_dtype, {width});
    const Tensor again = bench.make(dtype, shape);
    bench.run(RmsNormBackward{.dy = normal(bench, dtype, shape, 4),
                              .residual_out = residual,
                              .weight = weight,
                              .rstd = rstd,
                              .dresidual_out = normal(bench, residual_dtype, shape, 5),
                              .dresidual = dresidual,
                              .dweight = dweight,
                              .y = again});
    return read(bench, residual, y, rstd, dresidual, dweight, again);
}

/// Heads of more than one vector and a part of one, in columns of a wider matrix.
std::vector<OwnedTensor> run_head_norm(Workbench& bench, DType dtype, DType weight_dtype) {
    const std::int64_t heads = 6, size = 134;
    const auto columns = [=](const Tensor& packed) {
        return packed.columns(size, heads * size).split_columns(heads, size);
    };
    const Shape shape = {rows, (heads + 2) * size};
    const Tensor x = normal(bench, dtype, shape, 1), y = normal(bench, dtype, shape, 2);
    const Tensor weight = normal(bench, weight_dtype, {size}, 3), dweight = bench.make(weight_dtype, {size});
    bench.run(HeadNorm{.x = columns(x), .weight = weight, .y = columns(y), .eps = 1e-5f});
    const Tensor gradient = normal(bench, dtype, shape, 4);
    bench.run(HeadNormBackward{.dy = columns(gradient),
                               .x = columns(x),
                               .weight = weight,
                               .dx = columns(gradient),
                               .dweight = dweight,
                               .eps = 1e-5f});
    return read(bench, y, gradient, dweight);
}

std::vector<OwnedTensor> run_rope(Workbench& bench, DType dtype) {
    const Tensor x = normal(bench, dtype, {rows, 6, 134}, 1);
    bench.run(Rope{.x = x,
                   .cosine = normal(bench, DType::f32, {9, 67}, 2),
                   .sine = normal(bench, DType::f32, {9, 67}, 3),
                   .positions = bench.put(random_integers({rows}, 4, 0, 9))});
    return read(bench, x);
}

std::vector<OwnedTensor> run_swiglu(Workbench& bench, DType dtype) {
    const Tensor gate_up = normal(bench, dtype, {rows, 2 * width}, 1, 3);
    const Tensor y = bench.make(dtype, {rows, width}), dgate_up = bench.make(dtype, {rows, 2 * width});
    bench.run(Swiglu{.gate_up = gate_up, .y = y});
    bench.run(SwigluBackward{
        .gate_up = gate_up, .dy = normal(bench, dtype, {rows, width}, 2), .dgate_up = dgate_up});
    return read(bench, y, dgate_up);
}

std::vector<OwnedTensor> run_cross_entropy(Workbench& bench, DType dtype) {
    const Tensor logits = normal(bench, dtype, {rows, width}, 1, 3);
    const Tensor targets = bench.put(random_integers({rows}, 2, 0, width));
    const Tensor max = bench.make(DType::f32, {rows}), sum_exp = bench.make(DType::f32, {rows});
    const Tensor target_logit = bench.make(DType::f32, {rows}), argmax = bench.make(DType::i32, {rows});
    const Tensor loss = bench.make(DType::f32, {rows}), weighted = bench.make(DType::f32, {rows});
    const Tensor entropy = bench.make(DType::f32, {rows}), correct = bench.make(DType::f32, {rows});
    bench.run(CrossEntropyStatistics{.logits = logits,
                                     .targets = targets,
                                     .max = max,
                                     .sum_exp = sum_exp,
                                     .target_logit = target_logit,
                                     .argmax = argmax,
                                     .weighted_sum = weighted});
    bench.run(CrossEntropyGradient{.logits = logits,
                                   .targets = targets,
                                   .max = max,
                                   .sum_exp = sum_exp,
                                   .target_logit = target_logit,
                                   .loss = loss,
                                   .scale = bench.put({0.01f}),
                                   .weighted_sum = weighted,
                                   .argmax = argmax,
                                   .entropy = entropy,
                                   .correct = correct});
    return read(bench, max, sum_exp, target_logit, argmax, loss, logits, weighted, entropy, correct);
}

std::vector<OwnedTensor> run_cross_entropy_rescale(Workbench& bench) {
    const Tensor sum_exp = normal(bench, DType::f32, {rows * width}, 1);
    const Tensor argmax = bench.put(random_integers({rows * width}, 2, 0, vocabulary));
    bench.run(CrossEntropyRescale{.local_max = normal(bench, DType::f32, {rows * width}, 3),
                                  .max = bench.put(random_normal(DType::f32, {rows * width}, 4, 1, 3)),
                                  .sum_exp = sum_exp,
                                  .argmax = argmax});
    return read(bench, sum_exp, argmax);
}

std::vector<OwnedTensor> run_embedding(Workbench& bench, DType dtype) {
    const Tensor ids = bench.put(random_integers({rows}, 1, 0, vocabulary / 9));
    const Tensor y = bench.make(dtype, {rows, width}), dweight = bench.make(dtype, {vocabulary, width});
    bench.run(Embedding{.ids = ids, .weight = normal(bench, dtype, {vocabulary, width}, 2), .y = y});
    bench.run(
        EmbeddingBackward{.ids = ids, .dy = normal(bench, dtype, {rows, width}, 3), .dweight = dweight});
    return read(bench, y, dweight);
}

std::vector<OwnedTensor> run_jitter(Workbench& bench, DType dtype) {
    const Tensor x = normal(bench, dtype, {rows, width}, 1);
    bench.run(JitterTokens{.x = x,
                           .scalars = normal(bench, DType::f32, {StepScalar::count}, 2),
                           .first_token = 17,
                           .amplitude = 0.1f,
                           .seed = 3,
                           .leaf = 4});
    return read(bench, x);
}

std::vector<OwnedTensor> run_adapters(Workbench& bench, DType dtype) {
    constexpr std::int64_t rank = 6;
    const Tensor x = normal(bench, dtype, {rows, width}, 1), y = bench.make(dtype, {rows, width});
    const Tensor squares = bench.make(DType::f32, {rows}), factors = bench.make(DType::f32, {width});
    const Tensor dmagnitudes = bench.make(DType::f32, {width}), lengths = bench.make(DType::f32, {width});
    const Tensor magnitudes = normal(bench, dtype, {width}, 2);
    bench.run(DropElements{.x = x,
                           .y = y,
                           .scalars = normal(bench, DType::f32, {StepScalar::count}, 3),
                           .first_row = 17,
                           .columns = width,
                           .rate = 0.25,
                           .seed = 3,
                           .leaf = 4});
    bench.run(AdaptedSquares{.weight = x,
                             .b = normal(bench, dtype, {rows, rank}, 4),
                             .products = normal(bench, DType::f32, {rows, rank}, 5),
                             .gram = normal(bench, DType::f32, {rank, rank}, 6),
                             .squares = squares,
                             .scale = 0.5f});
    bench.run(Fill{.x = lengths, .value = 2.5});
    bench.run(MagnitudeFactors{.magnitudes = magnitudes, .squares = lengths, .factors = factors});
    bench.run(ScaleColumns{.x = y, .y = y, .factors = factors, .bias = normal(bench, dtype, {width}, 7)});
    bench.run(MagnitudeGradient{.dy = x, .y = y, .magnitudes = magnitudes, .dmagnitudes = dmagnitudes});
    bench.run(Scale{.x = y, .factor = 1.25f});
    const Tensor turned = normal(bench, DType::f32, {width, rows}, 8);
    bench.run(Transpose{.x = y, .y = turned, .accumulate = true});
    return read(bench, y, squares, factors, dmagnitudes, turned);
}

std::vector<OwnedTensor> run_bias_gradient(Workbench& bench, DType dtype) {
    const Tensor dbias = bench.make(dtype, {width});
    bench.run(BiasGradient{.dy = normal(bench, dtype, {rows, width}, 1), .dbias = dbias});
    return read(bench, dbias);
}

std::vector<OwnedTensor> run_optimizer(Workbench& bench, DType dtype, bool with_master) {
    const Shape shape = {rows, width};
    const DType moment = with_master ? DType::f32 : dtype;
    const Tensor gradient = normal(bench, dtype, shape, 1), sums = bench.make(DType::f64, {1});
    const Tensor scalars = bench.put({0.01f, 1.f, 0.1f, 0.001f, 0.f, 0.f, 1.f, 1.f, 0.f});
    const Tensor gradients[] = {gradient};
    bench.run(SumOfSquares{.tensors = gradients, .sums = sums});
    bench.run(ClipFactor{.sums = sums, .scalars = scalars, .max_norm = 1});
    const Tensor exp_avg = normal(bench, moment, shape, 2, 0.1), exp_avg_sq = bench.make(moment, shape);
    bench.run(Fill{.x = exp_avg_sq, .value = 0.25});
    const AdamWLeaf leaf{.param = normal(bench, dtype, shape, 3),
                         .gradient = gradient,
                         .exp_avg = exp_avg,
                         .exp_avg_sq = exp_avg_sq,
                         .master = with_master ? normal(bench, DType::f32, shape, 3) : Tensor(),
                         .weight_decay = 0.1f};
    const AdamWLeaf leaves[] = {leaf};
    bench.run(AdamW{.leaves = leaves, .scalars = scalars});
    std::vector<OwnedTensor> result = read(bench, sums, scalars, exp_avg, exp_avg_sq, leaf.param);
    if (with_master) result.push_back(bench.get(leaf.master));
    return result;
}

/// A maximum, both ways to write FP8 numbers, their product, and how they are turned around.
std::vector<OwnedTensor> run_fp8(Workbench& bench, DType dtype) {
    constexpr std::int64_t columns = 1008, padded = 144;
    const Tensor x = normal(bench, dtype, {rows, columns}, 1), maximum = bench.put({0.f});
    const Tensor y = bench.make(DType::f8, {rows, columns}), scale = bench.make(DType::f32, {1});
    const Tensor transposed = bench.make(DType::f8, {columns, padded});
    bench.run(AbsoluteMaximum{.x = x, .maximum = maximum});
    bench.run(Quantise{.x = x, .maximum = maximum, .y = y, .transposed = transposed, .scale = scale});
    const Tensor product = bench.make(dtype, {columns, columns});
    bench.run(Fp8Gemm{.a = transposed, .b = transposed, .c = product, .scale_a = scale, .scale_b = scale});
    const Tensor turned = bench.make(DType::f8, {padded, columns});
    bench.run(Fp8Transpose{.x = transposed, .y = turned});
    return read(bench, maximum, y, scale, transposed, product, turned);
}

/// Blocks with scales, both ways, and a product of theirs.
std::vector<OwnedTensor> run_fp8_blocks(Workbench& bench, DType dtype) {
    constexpr std::int64_t columns = 1008, padded = 144;
    const auto matrix = [&](Fp8Scales kind, std::int64_t height, std::int64_t across) {
        const Tensor table = bench.make(DType::f32, shape_of_scales(kind, height, across));
        bench.run(Fill{.x = table, .value = 0});  // some have no numbers
        return std::pair{bench.make(DType::f8, {height, across}), table};
    };
    const auto [y, scales] = matrix(Fp8Scales::rows, rows_of_operand(Fp8Scales::rows, rows), columns);
    const auto [turned, turned_scales] = matrix(Fp8Scales::rows, columns, padded);
    const auto [weight, weight_scales] = matrix(Fp8Scales::squares, columns, columns);
    bench.run(QuantiseBlocks{.x = normal(bench, dtype, {rows, columns}, 1),
                             .blocks = Fp8Scales::rows,
                             .y = y,
                             .scales = scales,
                             .transposed = turned,
                             .transposed_scales = turned_scales});
    bench.run(QuantiseBlocks{.x = normal(bench, dtype, {columns, columns}, 2),
                             .blocks = Fp8Scales::squares,
                             .y = weight,
                             .scales = weight_scales});
    const Tensor product = bench.make(dtype, {rows, columns});
    bench.run(Fp8Gemm{.a = y,
                      .b = weight,
                      .c = product,
                      .scale_a = scales,
                      .scale_b = weight_scales,
                      .scales_a = Fp8Scales::rows,
                      .scales_b = Fp8Scales::squares});
    return read(bench, scales, turned, turned_scales, weight, weight_scales, product);
}

std::vector<OwnedTensor> run_general(Workbench& bench, DType dtype) {
    const Tensor wide = normal(bench, DType::f32, {rows, width}, 1), to = bench.make(dtype, {rows, width});
    const Tensor total = bench.make(DType::f64, {1}), filled = bench.make(dtype, {rows, width});
    bench.run(Cast{.from = wide, .to = to});
    bench.run(Add{.into = to, .x = normal(bench, dtype, {rows, width}, 2)});
    bench.run(Fill{.x = filled, .value = 1.5});
    bench.run(Sum{.x = wide.view({rows * width}), .out = total});
    return read(bench, to, total, filled);
}

}  // namespace

std::vector<OperationCase> every_operation(const std::vector<DType>& types) {
    std::vector<OperationCase> cases;
    const auto add = [&](std::string name, DType dtype, auto run) {
        cases.push_back({std::move(name) + " " + std::string(name_of(dtype)), dtype, run});
    };
    for (DType dtype : types) {
        add("rms_norm", dtype, [=](Workbench& bench) { return run_rms_norm(bench, dtype, dtype); });
        add("head_norm", dtype, [=](Workbench& bench) { return run_head_norm(bench, dtype, dtype); });
        add("rope", dtype, [=](Workbench& bench) { return run_rope(bench, dtype); });
        add("swiglu", dtype, [=](Workbench& bench) { return run_swiglu(bench, dtype); });
        add("cross_entropy", dtype, [=](Workbench& bench) { return run_cross_entropy(bench, dtype); });
        add("embedding", dtype, [=](Workbench& bench) { return run_embedding(bench, dtype); });
        add("jitter", dtype, [=](Workbench& bench) { return run_jitter(bench, dtype); });
        add("adapters", dtype, [=](Workbench& bench) { return run_adapters(bench, dtype); });
        add("bias_gradient", dtype, [=](Workbench& bench) { return run_bias_gradient(bench, dtype); });
        add("optimizer", dtype, [=](Workbench& bench) { return run_optimizer(bench, dtype, false); });
        add("fp8", dtype, [=](Workbench& bench) { return run_fp8(bench, dtype); });
        add("fp8 blocks", dtype, [=](Workbench& bench) { return run_fp8_blocks(bench, dtype); });
        add("general", dtype, [=](Workbench& bench) { return run_general(bench, dtype); });
        if (dtype == DType::f32) continue;
        add("rms_norm on an f32 residual", dtype,
            [=](Workbench& bench) { return run_rms_norm(bench, dtype, DType::f32); });
        add("head_norm with an f32 weight", dtype,
            [=](Workbench& bench) { return run_head_norm(bench, dtype, DType::f32); });
        add("optimizer with master copy", dtype,
            [=](Workbench& bench) { return run_optimizer(bench, dtype, true); });
    }
    add("cross_entropy_rescale", DType::f32, run_cross_entropy_rescale);
    // Every device converts it.
    if (std::ranges::find(types, DType::f16) == types.end())
        add("general", DType::f16, [](Workbench& bench) { return run_general(bench, DType::f16); });
    add_expert_operations(cases, types);
    add_optimizer_operations(cases, types);
    return cases;
}

}  // namespace drover::test
