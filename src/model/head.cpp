#include "model/head.h"

#include <algorithm>

#include "core/counter_rng.h"

namespace drover {

std::int64_t HeadBuffers::chunk_rows(std::int64_t tokens, std::int64_t vocab, Device device) {
    // Every chunk reads the head's weights and their gradients once, in products whose tiles it must fill: a
    // GPU needs thousands of rows for that; on a CPU the chunk should almost fit its caches.
    const bool gpu = device != Device::cpu;
    const std::int64_t elements = std::int64_t{1} << (gpu ? 29 : 25), granularity = gpu ? 256 : 64;
    const std::int64_t rows = std::max(granularity, elements / vocab / granularity * granularity);
    return std::min(tokens, rows);
}

void HeadBuffers::plan_results(Arena& arena, const BlockShape& largest, const Sizes& sizes) {
    loss = arena.make(MemoryUse::head, DType::f32, {largest.tokens});
    argmax = arena.make(MemoryUse::head, DType::i32, {largest.tokens});
    if (!sizes.counts_predictions) return;
    for (Tensor* result : {&entropy, &correct})
        *result = arena.make(MemoryUse::head, DType::f32, {largest.tokens});
}

void HeadBuffers::plan_scratch(Arena& arena, const BlockShape& largest, const Precision& precision,
                               const TensorParallel& parallel, const Sizes& sizes) {
    const int ranks = parallel.axis().size();
    const Range vocabulary = split_range(sizes.vocab_size, ranks, parallel.axis().rank());
    const DType compute = precision.parameters;
    const auto make = [&](DType dtype, const Shape& shape) {
        return arena.make(MemoryUse::head, dtype, shape);
    };
    residual = make(precision.residual, {largest.held, largest.hidden});
    rstd = make(DType::f32, {largest.held});
    normed = make(compute, {largest.held, largest.hidden});
    dnormed = make(compute, {largest.tokens, largest.hidden});
    if (parallel.splits_tokens()) {
        gathered = make(compute, {largest.tokens, largest.hidden});
        held_dnormed = make(compute, {largest.held, largest.hidden});
    }
    // From the largest part of the vocabulary, so that all ranks take the same chunks.
    const std::int64_t rows = chunk_rows(largest.tokens, part_size(sizes.vocab_size, ranks), arena.device());
    logits = make(compute, {rows, vocabulary.count});
    for (Tensor* statistic : {&max, &sum_exp, &target_logit}) *statistic = make(DType::f32, {rows});
    if (parallel.axis().size() > 1) local_max = make(DType::f32, {rows});
    if (sizes.label_smoothing) logit_sum = make(DType::f32, {rows});
    if (sizes.rank > 0)
        for (Tensor* t : {&adapted, &dadapted}) *t = make(compute, {rows, sizes.rank});
    if (sizes.rank > 0 && sizes.adapter_drops) dropped = make(compute, {rows, largest.hidden});
    row_loss = make(DType::f32, {largest.tokens});
    row_argmax = make(DType::i32, {largest.tokens});
    if (!sizes.counts_predictions) return;
    weighted_sum = make(DType::f32, {rows});
    for (Tensor* result : {&row_entropy, &row_correct}) *result = make(DType::f32, {largest.tokens});
}

HeadBuffers HeadBuffers::prefix(const BlockShape& shape) const {
    HeadBuffers part = *this;
    for (Tensor* held : {&part.residual, &part.rstd, &part.normed, &part.held_dnormed})
        *held = held->first_rows(shape.held);
    for (Tensor* whole :
         {&part.gathered, &part.dnormed, &part.loss, &part.argmax, &part.entropy, &part.correct})
        *whole = whole->first_rows(shape.tokens);
    return part;
}

void Head::norm(const Tensor& norm_weight, const Tensor& stream, const Tensor& branch) const {
    const Scope scope = run_.scope("RMSNorm");
    run_(RmsNorm{.x = branch,
                 .residual_in = stream,
                 .residual_out = b_.residual,
                 .weight = norm_weight,
                 .y = b_.normed,
                 .rstd = b_.rstd,
                 .eps = settings_.norm_eps});
}

Head::Rows Head::rows_with_targets() const {
    const Tensor normed = parallel_.enter(run_.stream, b_.normed, b_.gathered);  // [N,H]
    const TargetRows& few = batch_.target_rows;
    if (!few) return {normed, batch_.targets, b_.dnormed, b_.loss, b_.argmax, b_.entropy, b_.correct};
    const std::int64_t count = few.tokens.size(0);
    const Tensor chosen = b_.dnormed.rows(0, count);  // [R,H]
    run_(Embedding{.ids = few.tokens, .weight = normed, .y = chosen});
    return {chosen,
            few.targets,
            normed.rows(0, count),
            b_.row_loss.rows(0, count),
            b_.row_argmax.rows(0, count),
            b_.row_entropy.first_rows(count),
            b_.row_correct.first_rows(count),
            few.tokens};
}

void Head::to_tokens(const Tensor& x, const Tensor& y) const {
    if (!batch_.target_rows) return;
    // Rows are copied bit by bit, so ids may pass for floats.
    const auto matrix = [](const Tensor& t) {
        return t.rank() == 2 ? t : Tensor(t.raw(), DType::f32, {t.size(0), 1}, t.device());
    };
    run_(Embedding{.ids = batch_.target_rows.row_of_token, .weight = matrix(x), .y = matrix(y)});
}

void Head::drop(const Rows& all, std::int64_t begin, const Tensor& x, const Tensor& y) const {
    const TokenNoise& noise = *batch_.noise;
    constexpr std::uint64_t name = leaf_hash("lora_dropout of lm_head");
    run_(DropElements{.x = x,
                      .y = y,
                      .scalars = noise.scalars,
                      .number_of_row = all.tokens ? all.tokens.rows(begin, x.size(0)) : Tensor(),
                      .first_row = noise.first_token + (all.tokens ? 0 : begin),
                      .columns = x.size(1),
                      .rate = settings_.adapter_dropout,
                      .seed = noise.seed,
                      .leaf = philox_stream(name, noise.micro_batch)});
}

Tensor Head::chunk_loss(const Rows& all, const Projection& weights, std::int64_t begin, std::int64_t rows,
                        const Tensor& loss_scale) const {
    const Tensor logits = b_.logits.rows(0, rows);  // [rows,V]
    const Tensor x = all.normed.rows(begin, rows);  // [rows,H]
    Gemm product = Gemm::forward(x, weights.weight, logits);
    if (weights.a) {
        const Tensor input = adapter_drops() ? b_.dropped.rows(0, rows) : x;
        if (adapter_drops()) drop(all, begin, x, input);
        const Tensor t = b_.adapted.rows(0, rows);  // [rows,r]
        run_(Gemm::forward(input, weights.a, t));
        run_(Scale{.x = t, .factor = settings_.adapter_scale});
        run_(Gemm::forward(t, weights.b, logits));
        product.accumulate = true;
    }
    run_(product);
    const CrossEntropyStatistics statistics{.logits = logits,
                                            .targets = all.targets.rows(begin, rows),
                                            .max = b_.max.rows(0, rows),
                                            .sum_exp = b_.sum_exp.rows(0, rows),
                                            .target_logit = b_.target_logit.rows(0, rows),
                                            .argmax = all.argmax.rows(begin, rows),
                                            .logit_sum = b_.logit_sum.first_rows(rows),
                                            .weighted_sum = b_.weighted_sum.first_rows(rows),
                                            .first_id = settings_.vocabulary.begin};
    run_(statistics);
    if (b_.local_max) reduce_statistics(b_.local_max.rows(0, rows), statistics);
    const bool counts = static_cast<bool>(statistics.weighted_sum);
    run_(CrossEntropyGradient{.logits = logits,
                              .targets = statistics.targets,
                              .max = statistics.max,
                              .sum_exp = statistics.sum_exp,
                              .target_logit = statistics.target_logit,
                              .loss = all.loss.rows(begin, rows),
                              .scale = loss_scale,
                              .first_id = settings_.vocabulary.begin,
                              .smoothing = settings_.label_smoothing,
                              .logit_sum = statistics.logit_sum,
                              .vocabulary = settings_.vocab_size,
                              .weighted_sum = statistics.weighted_sum,
                              .argmax = counts ? statistics.argmax : Tensor(),
                              .entropy = counts ? all.entropy.rows(begin, rows) : Tensor(),
                              .correct = counts ? all.correct.rows(begin, rows) : Tensor()});
    return logits;
}

void Head::reduce_statistics(const Tensor& local_max, const CrossEntropyStatistics& statistics) const {
    Communicator& axis = parallel_.axis();
    run_(Cast{.from = statistics.max, .to = local_max});
    axis.all_reduce(run_.stream, statistics.max, Reduction::max);
    run_(CrossEntropyRescale{.local_max = local_max,
                             .max = statistics.max,
                             .sum_exp = statistics.sum_exp,
                             .argmax = statistics.argmax,
                             .weighted_sum = statistics.weighted_sum});
    axis.all_reduce(run_.stream, statistics.sum_exp, Reduction::sum);
    axis.all_reduce(run_.stream, statistics.target_logit, Reduction::sum);
    for (const Tensor& sum : {statistics.logit_sum, statistics.weighted_sum})
        if (sum) axis.all_reduce(run_.stream, sum, Reduction::sum);
    axis.all_reduce(run_.stream, statistics.argmax, Reduction::min);
}

void Head::evaluate(const Projection& weights) const {
    const Rows all = rows_with_targets();
    const std::int64_t chunk = b_.logits.size(0), count = all.targets.size(0);
    for (std::int64_t begin = 0; begin < count; begin += chunk)
        chunk_loss(all, weights, begin, std::min(chunk, count - begin), {});
    to_tokens(all.loss, b_.loss);
    to_tokens(all.argmax, b_.argmax);
    if (b_.entropy) to_tokens(all.entropy, b_.entropy);
}

void Head::chunk_gradients(const Rows& all, const Projection& weights, const Projection& gradients,
                           bool accumulate, std::int64_t begin, const Tensor& dlogits) const {
    const std::int64_t rows = dlogits.size(0);
    const Tensor x = all.normed.rows(begin, rows), dx = all.dnormed.rows(begin, rows);  // [rows,H]
    if (gradients.weight) run_(Gemm::weight_gradient(dlogits, x, gradients.weight, accumulate));
    Gemm product = Gemm::data_gradient(dlogits, weights.weight, dx);
    if (weights.a) {
        const Tensor t = b_.adapted.rows(0, rows), dt = b_.dadapted.rows(0, rows);  // [rows,r]
        run_(Gemm::weight_gradient(dlogits, t, gradients.b, accumulate));
        run_(Gemm::data_gradient(dlogits, weights.b, dt));
        run_(Scale{.x = dt, .factor = settings_.adapter_scale});
        const Tensor input = adapter_drops() ? b_.dropped.rows(0, rows) : x;
        run_(Gemm::weight_gradient(dt, input, gradients.a, accumulate));
        run_(Gemm::data_gradient(dt, weights.a, dx));
        if (adapter_drops()) drop(all, begin, dx, dx);
        product.accumulate = true;
    }
    run_(product);
}

void Head::loss_and_gradient(const Projection& weights, const Projection& gradients, bool accumulate,
                             const Tensor& loss_scale) const {
    const Rows all = rows_with_targets();
    const std::int64_t chunk = b_.logits.size(0), count = all.targets.size(0);
    for (std::int64_t begin = 0; begin < count; begin += chunk) {
        const std::int64_t rows = std::min(chunk, count - begin);
        const Tensor dlogits = chunk_loss(all, weights, begin, rows, loss_scale);  // [rows,V]
        chunk_gradients(all, weights, gradients, accumulate || begin > 0, begin, dlogits);
    }
    to_tokens(all.loss, b_.loss);
    to_tokens(all.dnormed, b_.dnormed);
    if (!b_.entropy) return;
    to_tokens(all.entropy, b_.entropy);
    to_tokens(all.correct, b_.correct);
}

void Head::norm_backward(const Tensor& norm_weight, const Tensor& dnorm_weight, bool accumulate,
                         const Tensor& dresidual) const {
    const Scope scope = run_.scope("RMSNorm");
    run_(RmsNormBackward{.dy = parallel_.leave(run_.stream, b_.dnormed, b_.held_dnormed),
                         .residual_out = b_.residual,
                         .weight = norm_weight,
                         .rstd = b_.rstd,
                         .dresidual = dresidual,
                         .dweight = dnorm_weight,
                         .accumulate = accumulate});
}

}  // namespace drover
