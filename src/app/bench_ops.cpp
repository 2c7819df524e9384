#include <fmt/format.h>

#include <cmath>
#include <memory>
#include <numeric>

#include "app/bench_options.h"
#include "app/bench_report.h"
#include "app/commands.h"
#include "app/operation_timer.h"
#include "args/command.h"
#include "core/console.h"
#include "core/error.h"
#include "model/block_shape.h"
#include "model/config.h"
#include "model/fp8.h"
#include "model/head.h"
#include "parallel/mesh.h"

namespace drover {
namespace {

/// The operations of a model at its shapes, each timed separately.
class ModelOperations {
  public:
    ModelOperations(const ModelConfig& config, const BenchShape& bench, DType dtype, OperationTimer& timer)
        : config_(config),
          shape_(BlockShape::make(config, MoeMode::grouped, TensorParallel(mesh_.tp(), false), bench.batch,
                                  bench.sequence)),
          dtype_(dtype),
          timer_(timer) {}

    void time_all() {
        const auto part = [&](void (ModelOperations::*time)()) {
            (this->*time)();
            timer_.drop_operands();
        };
        part(&ModelOperations::embedding);
        part(&ModelOperations::norms);
        part(&ModelOperations::attention);
        part(&ModelOperations::feed_forward);
        part(&ModelOperations::adapters);
        part(&ModelOperations::fp8);
        part(&ModelOperations::head);
        part(&ModelOperations::update);
        part(&ModelOperations::arithmetic);
    }

  private:
    Tensor normal(std::int64_t rows, std::int64_t columns) { return timer_.normal(dtype_, {rows, columns}); }
    Tensor empty(std::int64_t rows, std::int64_t columns) { return timer_.zeros(dtype_, {rows, columns}); }
    Tensor floats(const Shape& shape) { return timer_.zeros(DType::f32, shape); }
    Tensor indices(const Shape& shape) { return timer_.zeros(DType::i32, shape); }

    /// The three products of a linear layer with `rows` rows of input.
    void linear(const std::string& place, std::int64_t rows, std::int64_t in, std::int64_t out) {
        if (!timer_.times_products()) return;
        const Tensor x = normal(rows, in), weight = normal(out, in), dy = normal(rows, out);
        timer_.time(place, Gemm::forward(x, weight, empty(rows, out)));
        timer_.time(place, Gemm::data_gradient(dy, weight, empty(rows, in)));
        timer_.time(place, Gemm::weight_gradient(dy, x, empty(out, in), false));
    }

    void embedding() {
        const Tensor ids = timer_.integers({shape_.tokens}, config_.vocab_size);
        const Tensor weight = normal(config_.vocab_size, shape_.hidden);
        timer_.time("", Embedding{.ids = ids, .weight = weight, .y = empty(shape_.tokens, shape_.hidden)});
        timer_.time(
            "", EmbeddingBackward{.ids = ids, .dy = normal(shape_.tokens, shape_.hidden), .dweight = weight});
        timer_.time("", noise(true));
    }

    /// Of one matrix, q, k and v, with an adapter of the usual rank.
    void adapters() {
        const std::int64_t n = shape_.tokens, in = shape_.hidden, out = shape_.qkv_columns(), rank = 16;
        const Tensor x = normal(n, in), y = normal(n, out), weight = normal(out, in);
        const Tensor ones = timer_.constant(DType::f32, {out}, 1);
        timer_.time("", DropElements{.x = x,
                                     .y = empty(n, in),
                                     .scalars = timer_.constant(DType::f32, {StepScalar::count}, 1),
                                     .columns = in,
                                     .rate = 0.1});
        timer_.time("", Scale{.x = normal(n, rank), .factor = 1});
        timer_.time("",
                    Transpose{.x = normal(rank, config_.vocab_size), .y = empty(config_.vocab_size, rank)});
        timer_.time("", AdaptedSquares{.weight = weight,
                                       .b = normal(out, rank),
                                       .products = timer_.normal(DType::f32, {out, rank}),
                                       .gram = timer_.normal(DType::f32, {rank, rank}),
                                       .squares = floats({out})});
        timer_.time("", MagnitudeFactors{.magnitudes = timer_.constant(dtype_, {out}, 1),
                                         .squares = ones,
                                         .factors = floats({out})});
        timer_.time("", ScaleColumns{.x = y, .y = y, .factors = ones});
        timer_.time("", MagnitudeGradient{.dy = normal(n, out),
                                          .y = y,
                                          .magnitudes = timer_.constant(dtype_, {out}, 1),
                                          .dmagnitudes = floats({out})});
    }

    /// Of gate and up, if its sides are multiples of 16.
    void fp8() {
        const std::int64_t n = shape_.tokens, in = shape_.hidden, out = 2 * shape_.ffn;
        if (in % 16 != 0 || out % 16 != 0) return;
        const Tensor x = normal(n, in), maximum = floats({1}), scale = floats({1});
        timer_.time("", AbsoluteMaximum{.x = x, .maximum = maximum});
        Quantise quantise{.x = x, .maximum = maximum, .y = timer_.zeros(DType::f8, {n, in}), .scale = scale};
        timer_.time("", quantise);
        const Tensor x8 = quantise.y, weight8 = timer_.zeros(DType::f8, {out, in});
        quantise.transposed = timer_.zeros(DType::f8, {in, fp8_rows(n, Fp8Recipe::tensorwise)});
        timer_.time("", quantise);
        timer_.run(Quantise{.x = normal(out, in), .maximum = maximum, .y = weight8, .scale = scale});
        timer_.time("gate, up", Fp8Transpose{.x = weight8, .y = timer_.zeros(DType::f8, {in, out})});
        timer_.time(
            "gate, up",
            Fp8Gemm{
                .a = x8, .b = weight8, .c = empty(n, out), .scale_a = scale, .scale_b = scale, .fast = true});
        fp8_blocks(x, normal(out, in));
    }

    /// With scales of blocks: an input both ways, and a weight.
    void fp8_blocks(const Tensor& x, const Tensor& weight) {
        const auto matrix = [&](Fp8Scales kind, std::int64_t rows, std::int64_t columns) {
            return std::pair{timer_.zeros(DType::f8, {rows, columns}),
                             floats(shape_of_scales(kind, rows, columns))};
        };
        const std::int64_t n = x.size(0), in = x.size(1);
        const auto [y, scales] = matrix(Fp8Scales::rows, rows_of_operand(Fp8Scales::rows, n), in);
        const auto [turned, turned_scales] = matrix(Fp8Scales::rows, in, fp8_rows(n, Fp8Recipe::blockwise));
        const auto [weight8, weight_scales] = matrix(Fp8Scales::squares, weight.size(0), in);
        timer_.time("", QuantiseBlocks{.x = x,
                                       .blocks = Fp8Scales::rows,
                                       .y = y,
                                       .scales = scales,
                                       .transposed = turned,
                                       .transposed_scales = turned_scales});
        timer_.time(
            "",
            QuantiseBlocks{.x = weight, .blocks = Fp8Scales::squares, .y = weight8, .scales = weight_scales});
    }

    /// So small that many rounds leave the values unchanged.
    JitterTokens noise(bool added) {
        return {.x = normal(shape_.tokens, shape_.hidden),
                .scalars = timer_.constant(DType::f32, {StepScalar::count}, 1),
                .amplitude = 1e-6f,
                .added = added};
    }

    void norms() {
        const std::int64_t n = shape_.tokens, h = shape_.hidden;
        const Tensor residual = normal(n, h), weight = timer_.normal(dtype_, {h}), rstd = floats({n});
        timer_.time("", RmsNorm{.x = normal(n, h),
                                .residual_in = normal(n, h),
                                .residual_out = residual,
                                .weight = weight,
                                .y = empty(n, h),
                                .rstd = rstd,
                                .eps = static_cast<float>(config_.rms_norm_eps)});
        RmsNormBackward backward{.dy = normal(n, h),
                                 .residual_out = residual,
                                 .weight = weight,
                                 .rstd = rstd,
                                 .dresidual_out = normal(n, h),
                                 .dresidual = empty(n, h),
                                 .dweight = timer_.zeros(dtype_, {h})};
        timer_.time("", backward);
        backward.y = empty(n, h);
        timer_.time(and_output, backward);
        if (shape_.head_dim <= HeadNorm::largest_head) head_norms();
    }

    /// Of the queries, in their columns of q‖k‖v. Not every model has them.
    void head_norms() {
        const std::int64_t n = shape_.tokens, heads = shape_.heads, d = shape_.head_dim;
        const auto queries = [&](const Tensor& qkv) {
            return qkv.columns(0, shape_.query_columns()).split_columns(heads, d);
        };
        const auto eps = static_cast<float>(config_.rms_norm_eps);
        const Tensor x = queries(normal(n, shape_.qkv_columns())), weight = timer_.normal(dtype_, {d});
        timer_.time(
            "queries",
            HeadNorm{.x = x, .weight = weight, .y = queries(empty(n, shape_.qkv_columns())), .eps = eps});
        timer_.time("queries", HeadNormBackward{.dy = queries(normal(n, shape_.qkv_columns())),
                                                .x = x,
                                                .weight = weight,
                                                .dx = queries(empty(n, shape_.qkv_columns())),
                                                .dweight = timer_.zeros(dtype_, {d}),
                                                .eps = eps});
    }

    void attention() {
        const std::int64_t n = shape_.tokens, d = shape_.head_dim;
        linear("q, k and v", n, shape_.hidden, shape_.qkv_columns());
        linear("attention output", n, shape_.query_columns(), shape_.hidden);
        timer_.time("q, k and v", BiasGradient{.dy = normal(n, shape_.qkv_columns()),
                                               .dbias = timer_.zeros(dtype_, {shape_.qkv_columns()})});
        const auto heads = [&](const Tensor& qkv, std::int64_t first, std::int64_t count) {
            return qkv.columns(first * d, count * d).split_columns(count, d);
        };
        const Tensor qkv = normal(n, shape_.qkv_columns()), dqkv = empty(n, shape_.qkv_columns());
        const std::int64_t q = shape_.heads, kv = shape_.kv_heads;
        timer_.time("", Rope{.x = heads(qkv, 0, q + kv),
                             .cosine = timer_.constant(DType::f32, {shape_.row_length, d / 2}, 0.6),
                             .sine = timer_.constant(DType::f32, {shape_.row_length, d / 2}, 0.8),
                             .positions = timer_.integers({n}, shape_.row_length)});
        const Sequences sequences{.rows = shape_.rows, .row_length = shape_.row_length};
        const Tensor out = empty(n, shape_.query_columns()).split_columns(q, d);
        const Tensor lse = floats({shape_.rows, q, shape_.row_length});
        const float scale = 1.0f / std::sqrt(static_cast<float>(d));
        timer_.time("", Attention{.q = heads(qkv, 0, q),
                                  .k = heads(qkv, q, kv),
                                  .v = heads(qkv, q + kv, kv),
                                  .out = out,
                                  .lse = lse,
                                  .sequences = sequences,
                                  .scale = scale,
                                  .window = config_.window_of(0)});
        timer_.time("", AttentionBackward{.q = heads(qkv, 0, q),
                                          .k = heads(qkv, q, kv),
                                          .v = heads(qkv, q + kv, kv),
                                          .out = out,
                                          .lse = lse,
                                          .dout = normal(n, shape_.query_columns()).split_columns(q, d),
                                          .dq = heads(dqkv, 0, q),
                                          .dk = heads(dqkv, q, kv),
                                          .dv = heads(dqkv, q + kv, kv),
                                          .sequences = sequences,
                                          .scale = scale,
                                          .window = config_.window_of(0)});
        // One new token for each row, at the end of a full cache.
        const std::int64_t rows = shape_.rows, length = shape_.row_length;
        const auto cache = [&] { return timer_.normal(dtype_, {rows, length, kv, d}); };
        std::vector<std::int32_t> sequence_of(static_cast<std::size_t>(rows));
        std::iota(sequence_of.begin(), sequence_of.end(), 0);
        const CachedAttention cached{.q = timer_.normal(dtype_, {rows, q, d}),
                                     .k = timer_.normal(dtype_, {rows, kv, d}),
                                     .v = timer_.normal(dtype_, {rows, kv, d}),
                                     .key_cache = cache(),
                                     .value_cache = cache(),
                                     .sequence_of = indices({rows}),
                                     .positions = indices({rows}),
                                     .out = timer_.zeros(dtype_, {rows, q, d}),
                                     .scale = scale,
                                     .window = config_.window_of(0)};
        timer_.put(Tensor::of(sequence_of.data(), {rows}), cached.sequence_of);
        timer_.run(Fill{.x = cached.positions, .value = static_cast<double>(length - 1)});
        timer_.time("", cached);
    }

    void feed_forward() {
        const std::int64_t rows = shape_.expert_rows(), ffn = shape_.ffn;
        const Tensor gate_up = normal(rows, 2 * ffn);
        timer_.time("", Swiglu{.gate_up = gate_up, .y = empty(rows, ffn)});
        SwigluBackward backward{
            .gate_up = gate_up, .dy = normal(rows, ffn), .dgate_up = empty(rows, 2 * ffn)};
        timer_.time("", backward);
        backward.y = empty(rows, ffn);
        timer_.time(and_output, backward);
        if (config_.has_experts()) return experts();
        linear("gate and up", rows, shape_.hidden, 2 * ffn);
        linear("down", rows, ffn, shape_.hidden);
    }

    void experts() {
        const std::int64_t n = shape_.tokens, m = shape_.expert_rows(), h = shape_.hidden, e = shape_.experts;
        const Router router{.logits = timer_.normal(DType::f32, {n, e}),
                            .probabilities = floats({n, e}),
                            .experts = indices({n, shape_.slots}),
                            .weights = floats({n, shape_.slots}),
                            .chosen = config_.moe.chosen};
        const SortByExpert sort{.experts = router.experts,
                                .offsets = indices({e + 1}),
                                .row_of_slot = indices({m}),
                                .slot_of_row = indices({m})};
        linear("router", n, h, e);
        if (config_.moe.jitter > 0) timer_.time("", noise(false));
        timer_.time("", router);
        timer_.time("", RouterBackward{.probabilities = router.probabilities,
                                       .experts = router.experts,
                                       .weights = router.weights,
                                       .dweights = timer_.normal(DType::f32, {n, shape_.slots}),
                                       .dlogits = empty(n, e)});
        timer_.time("", BalanceLoss{.choices = timer_.constant(DType::f64, {router.chosen, e}, 1),
                                    .probability_sums = timer_.constant(DType::f64, {e}, 1),
                                    .loss = timer_.zeros(DType::f64, {1}),
                                    .balance = floats({e}),
                                    .coefficient = 0.01});
        timer_.time("", sort);
        const Tensor rows = empty(m, h), tokens = normal(n, h);
        timer_.time("", TokensToRows{.x = tokens, .slot_of_row = sort.slot_of_row, .rows = rows});
        timer_.time(
            "", RowsToTokens{
                    .rows = rows, .row_of_slot = sort.row_of_slot, .weights = router.weights, .y = tokens});
        // Weights of one: the operation multiplies in place, and any other weight would decay the rows to
        // zero.
        timer_.time("", WeightRows{.activated = normal(m, shape_.ffn),
                                   .dactivated = normal(m, shape_.ffn),
                                   .dy = rows,
                                   .slot_of_row = sort.slot_of_row,
                                   .weights = timer_.constant(DType::f32, {n, shape_.slots}, 1),
                                   .dweights = floats({n, shape_.slots})});
        grouped("gate and up", sort.offsets, h, 2 * shape_.ffn);
        grouped("down", sort.offsets, shape_.ffn, h);
    }

    void grouped(const std::string& place, const Tensor& offsets, std::int64_t in, std::int64_t out) {
        if (!timer_.times_products()) return;
        using Use = GroupedGemm::Use;
        const std::int64_t rows = shape_.expert_rows();
        const Tensor x = normal(rows, in), weights = normal(shape_.experts * out, in), dy = normal(rows, out);
        timer_.time(
            place, GroupedGemm{
                       .use = Use::forward, .a = x, .b = weights, .c = empty(rows, out), .offsets = offsets});
        timer_.time(
            place,
            GroupedGemm{
                .use = Use::data_gradient, .a = dy, .b = weights, .c = empty(rows, in), .offsets = offsets});
        timer_.time(
            place,
            GroupedGemm{.use = Use::weight_gradient, .a = dy, .b = x, .c = weights, .offsets = offsets});
        grouped_fp8(place, offsets, (in + 15) / 16 * 16, (out + 15) / 16 * 16);
    }

    void grouped_fp8(const std::string& place, const Tensor& offsets, std::int64_t in, std::int64_t out) {
        const std::int64_t rows = shape_.expert_rows();
        const Tensor scale = timer_.constant(DType::f32, {1}, 1);
        timer_.time(place, GroupedFp8Gemm{.a = timer_.zeros(DType::f8, {rows, in}),
                                          .b = timer_.zeros(DType::f8, {shape_.experts * out, in}),
                                          .c = empty(rows, out),
                                          .scale_a = scale,
                                          .scale_b = scale,
                                          .offsets = offsets,
                                          .fast = true});
    }

    void head() {
        const std::int64_t vocabulary = config_.vocab_size;
        const std::int64_t rows = HeadBuffers::chunk_rows(shape_.tokens, vocabulary, timer_.device());
        linear("head", rows, shape_.hidden, vocabulary);
        const Tensor targets = timer_.integers({rows}, vocabulary);
        const CrossEntropyStatistics statistics{.logits = normal(rows, vocabulary),
                                                .targets = targets,
                                                .max = floats({rows}),
                                                .sum_exp = floats({rows}),
                                                .target_logit = floats({rows}),
                                                .argmax = indices({rows})};
        timer_.time("", statistics);
        // Equal maxima, so that many rounds leave the sums unchanged.
        timer_.time("", CrossEntropyRescale{.local_max = timer_.constant(DType::f32, {rows}, 1),
                                            .max = timer_.constant(DType::f32, {rows}, 1),
                                            .sum_exp = timer_.constant(DType::f32, {rows}, 1),
                                            .argmax = indices({rows})});
        timer_.time("", CrossEntropyGradient{.logits = statistics.logits,
                                             .targets = targets,
                                             .max = statistics.max,
                                             .sum_exp = statistics.sum_exp,
                                             .target_logit = statistics.target_logit,
                                             .loss = floats({rows}),
                                             .scale = timer_.constant(DType::f32, {1}, 1)});
    }

    /// For one leaf, the embedding.
    void update() {
        const std::int64_t rows = config_.vocab_size, columns = shape_.hidden;
        const Tensor gradient = normal(rows, columns);
        const Tensor sums = timer_.zeros(DType::f64, {1});
        timer_.time("", SumOfSquares{.tensors = {&gradient, 1}, .sums = sums});
        const AdamWLeaf leaf{.param = normal(rows, columns),
                             .gradient = gradient,
                             .exp_avg = empty(rows, columns),
                             .exp_avg_sq = empty(rows, columns),
                             .place = {.columns = columns}};
        const Tensor scalars = timer_.constant(DType::f32, {StepScalar::count}, 1e-4);
        // Also marks the updates as not to be skipped.
        timer_.time("", ClipFactor{.sums = sums, .scalars = scalars, .max_norm = 1});
        timer_.time("", AdamW{.leaves = {&leaf, 1}, .scalars = scalars});
        if (dtype_ == DType::bf16)
            timer_.time("stochastic", AdamW{.leaves = {&leaf, 1},
                                            .scalars = scalars,
                                            .rounding = {.stochastic = true, .seed = 42}});
        const MomentLeaf of_one_moment{
            .param = leaf.param, .gradient = gradient, .moment = leaf.exp_avg_sq, .place = leaf.place};
        timer_.time("", Adagrad{.leaves = {&of_one_moment, 1}, .scalars = scalars});
        timer_.time("", Rmsprop{.leaves = {&of_one_moment, 1}, .scalars = scalars});
        // Last, because it leaves negative moments.
        timer_.time("", Sgd{.leaves = {&of_one_moment, 1}, .scalars = scalars, .momentum = 0.9f});
        const AdafactorMatrix matrix{.row_sums = floats({rows}),
                                     .column_sums = floats({columns}),
                                     .row_means = floats({rows}),
                                     .column_means = floats({columns})};
        const AdafactorLeaf factored{.param = leaf.param,
                                     .gradient = gradient,
                                     .rows = matrix.row_sums,
                                     .columns = matrix.column_sums,
                                     .squares = timer_.zeros(DType::f64, {1}),
                                     .clipped_elements = static_cast<double>(gradient.numel())};
        timer_.time("", AdafactorSums{.leaves = {&factored, 1}, .scalars = scalars});
        timer_.time("", AdafactorFactors{.matrices = {&matrix, 1}, .scalars = scalars});
        timer_.time("", AdafactorSquares{.leaves = {&factored, 1}, .scalars = scalars});
        timer_.time("", AdafactorUpdate{.leaves = {&factored, 1}, .scalars = scalars});
    }

    /// The remaining operations, on a micro-batch's activations.
    void arithmetic() {
        const std::int64_t n = shape_.tokens, h = shape_.hidden;
        const Tensor x = normal(n, h), into = empty(n, h);
        timer_.time("", Fill{.x = into});
        timer_.time("", Cast{.from = timer_.normal(DType::f32, {n, h}), .to = into});
        timer_.time("", Add{.into = into, .x = x});
        timer_.time("", Sum{.x = floats({n}), .out = timer_.zeros(DType::f64, {1})});
    }

    /// For gradients that also recompute the forward's output, under selective recompute.
    static constexpr const char* and_output = "and the output";

    const ModelConfig& config_;
    Mesh mesh_;
    BlockShape shape_;
    DType dtype_;
    OperationTimer& timer_;
};

std::string microseconds(double seconds) {
    return fmt::format("{:.1f} µs", 1e6 * seconds);
}

void print_table(const std::vector<TimedOperation>& operations, const MachinePeaks& peaks) {
    constexpr std::string_view line = "  {:<28} {:<18} {:>13} {:>16} {:>8}\n";
    print_result(fmt::runtime(line), "operation", "of", "time", "rate", "of peak");
    for (const TimedOperation& operation : operations) {
        const OperationRate rate = rate_of(operation.cost, operation.seconds, peaks);
        print_result(fmt::runtime(line), operation.cost.name, operation.place,
                     microseconds(operation.seconds), text_of(rate),
                     fmt::format("{:.1f} %", 100 * rate.of_peak));
    }
}

Json json_of(const std::vector<TimedOperation>& operations, const MachinePeaks& peaks) {
    Json list = Json::array();
    for (const TimedOperation& operation : operations) {
        const OperationRate rate = rate_of(operation.cost, operation.seconds, peaks);
        list.push_back({{"operation", operation.operation},
                        {"name", operation.cost.name},
                        {"of", operation.place},
                        {"ms", 1e3 * operation.seconds},
                        {rate.arithmetic ? "gflops" : "gb_per_second", rate.per_second / 1e9},
                        {"of_peak", rate.of_peak}});
    }
    return list;
}

void run_bench_ops(const BenchShape& bench, bool products) {
    const ModelConfig config = bench.config();
    const DType dtype = bench.precision().parameters;
    const std::unique_ptr<Backend> backend = bench.backend();
    const MachinePeaks peaks = backend->measure_peaks();
    OperationTimer timer(*backend, products);
    ModelOperations(config, bench, dtype, timer).time_all();
    if (bench.json) {
        const Json report = {{"model", bench.model},
                             {"dtype", bench.dtype},
                             {"device", backend->description()},
                             {"peaks", json_of(peaks)},
                             {"operations", json_of(timer.results(), peaks)}};
        print_result("{}\n", report.dump());
        return;
    }
    print_result("{}; operations of {} in {}, {} × {} tokens, each alone\nMachine's peaks: {}\n",
                 backend->description(), bench.model, bench.dtype, bench.batch, bench.sequence,
                 text_of(peaks));
    print_table(timer.results(), peaks);
}

}  // namespace

Command add_bench_ops_command(const Command& bench) {
    auto options = std::make_shared<BenchShape>();
    const Command command = bench.add_command(
        "ops",
        "Run each operation of a model alone at the model's shapes, warm; print its median time, its rate\n"
        "(GFLOP/s for products and attention, GB/s for what is bound by memory) and its share of what this "
        "machine\n"
        "can do at best. The optimizers' operations (AdamW in bf16 also with stochastic rounding) are timed\n"
        "on the embedding, cached attention with one new token for each row of a full cache.\n"
        "Example: drover bench ops --model llama-134m --dtype float32");
    options->add_to(command);
    auto memory_bound = std::make_shared<bool>(false);
    command.add_flag("--memory-bound", *memory_bound,
                     "time only what is bound by memory; of peak is then a share of the copy's rate");
    command.set_action([=] {
        refuse_flags_before(bench, command);
        run_bench_ops(*options, !*memory_bound);
    });
    return command;
}

}  // namespace drover
