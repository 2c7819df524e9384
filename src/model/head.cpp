#include "model/head.h"

#include <algorithm>

namespace drover {

std::int64_t HeadBuffers::chunk_rows(std::int64_t tokens, std::int64_t vocab, Device device) {
    // Every chunk reads the head's weights and their gradients once, in products whose tiles it must fill: a
    // GPU needs thousands of rows for that; on a CPU the chunk should almost fit its caches.
    const bool gpu = device != Device::cpu;
    const std::int64_t elements = std::int64_t{1} << (gpu ? 29 : 25), granularity = gpu ? 256 : 64;
    const std::int64_t rows = std::max(granularity, elements / vocab / granularity * granularity);
    return std::min(tokens, rows);
}

void HeadBuffers::plan_results(Arena& arena, const BlockShape& largest) {
    loss = arena.make(MemoryUse::head, DType::f32, {largest.tokens});
    argmax = arena.make(MemoryUse::head, DType::i32, {largest.tokens});
}

void HeadBuffers::plan_scratch(Arena& arena, const BlockShape& largest, const Precision& precision,
                               std::int64_t vocab_size, const TensorParallel& parallel,
                               bool label_smoothing) {
    const int ranks = parallel.axis().size();
    const Range vocabulary = split_range(vocab_size, ranks, parallel.axis().rank());
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
    const std::int64_t rows = chunk_rows(largest.tokens, part_size(vocab_size, ranks), arena.device());
    logits = make(compute, {rows, vocabulary.count});
    for (Tensor* statistic : {&max, &sum_exp, &target_logit}) *statistic = make(DType::f32, {rows});
    if (parallel.axis().size() > 1) local_max = make(DType::f32, {rows});
    if (label_smoothing) logit_sum = make(DType::f32, {rows});
}

HeadBuffers HeadBuffers::prefix(const BlockShape& shape) const {
    HeadBuffers part = *this;
    for (Tensor* held : {&part.residual, &part.rstd, &part.normed, &part.held_dnormed})
        *held = held->first_rows(shape.held);
    for (Tensor* whole : {&part.gathered, &part.dnormed, &part.loss, &part.argmax})
        *whole = whole->first_rows(shape.tokens);
    return part;
}

void Head::norm(const Tensor& norm_weight, const Tensor& stream, const Tensor& branch) const {
    run_(RmsNorm{.x = branch,
                 .residual_in = stream,
                 .residual_out = b_.residual,
                 .weight = norm_weight,
                 .y = b_.normed,
                 .rstd = b_.rstd,
                 .eps = settings_.norm_eps});
}

Tensor Head::chunk_loss(const Tensor& normed, const Tensor& head_weight, std::int64_t begin,
                        std::int64_t rows, const Tensor& loss_scale) const {
    const Tensor logits = b_.logits.rows(0, rows);  // [rows,V]
    run_(Gemm::forward(normed.rows(begin, rows), head_weight, logits));
    const CrossEntropyStatistics statistics{.logits = logits,
                                            .targets = batch_.targets.rows(begin, rows),
                                            .max = b_.max.rows(0, rows),
                                            .sum_exp = b_.sum_exp.rows(0, rows),
                                            .target_logit = b_.target_logit.rows(0, rows),
                                            .argmax = b_.argmax.rows(begin, rows),
                                            .logit_sum = b_.logit_sum.first_rows(rows),
                                            .first_id = settings_.vocabulary.begin};
    run_(statistics);
    if (b_.local_max) reduce_statistics(b_.local_max.rows(0, rows), statistics);
    run_(CrossEntropyGradient{.logits = logits,
                              .targets = statistics.targets,
                              .max = statistics.max,
                              .sum_exp = statistics.sum_exp,
                              .target_logit = statistics.target_logit,
                              .loss = b_.loss.rows(begin, rows),
                              .scale = loss_scale,
                              .first_id = settings_.vocabulary.begin,
                              .smoothing = settings_.label_smoothing,
                              .logit_sum = statistics.logit_sum,
                              .vocabulary = settings_.vocab_size});
    return logits;
}

void Head::reduce_statistics(const Tensor& local_max, const CrossEntropyStatistics& statistics) const {
    Communicator& axis = parallel_.axis();
    run_(Cast{.from = statistics.max, .to = local_max});
    axis.all_reduce(run_.stream, statistics.max, Reduction::max);
    run_(CrossEntropyRescale{.local_max = local_max,
                             .max = statistics.max,
                             .sum_exp = statistics.sum_exp,
                             .argmax = statistics.argmax});
    axis.all_reduce(run_.stream, statistics.sum_exp, Reduction::sum);
    axis.all_reduce(run_.stream, statistics.target_logit, Reduction::sum);
    if (statistics.logit_sum) axis.all_reduce(run_.stream, statistics.logit_sum, Reduction::sum);
    axis.all_reduce(run_.stream, statistics.argmax, Reduction::min);
}

void Head::evaluate(const Tensor& head_weight) const {
    const Tensor normed = parallel_.enter(run_.stream, b_.normed, b_.gathered);  // [N,H]
    const std::int64_t chunk = b_.logits.size(0);
    for (std::int64_t begin = 0; begin < normed.size(0); begin += chunk)
        chunk_loss(normed, head_weight, begin, std::min(chunk, normed.size(0) - begin), {});
}

void Head::loss_and_gradient(const Tensor& head_weight, const Tensor& dhead_weight, bool accumulate,
                             const Tensor& loss_scale) const {
    const Tensor normed = parallel_.enter(run_.stream, b_.normed, b_.gathered);  // [N,H]
    const std::int64_t chunk = b_.logits.size(0);
    for (std::int64_t begin = 0; begin < normed.size(0); begin += chunk) {
        const std::int64_t rows = std::min(chunk, normed.size(0) - begin);
        const Tensor dlogits = chunk_loss(normed, head_weight, begin, rows, loss_scale);  // [rows,V]
        if (dhead_weight)
            run_(Gemm::weight_gradient(dlogits, normed.rows(begin, rows), dhead_weight,
                                       accumulate || begin > 0));
        run_(Gemm::data_gradient(dlogits, head_weight, b_.dnormed.rows(begin, rows)));
    }
}

void Head::norm_backward(const Tensor& norm_weight, const Tensor& dnorm_weight, bool accumulate,
                         const Tensor& dresidual) const {
    run_(RmsNormBackward{.dy = parallel_.leave(run_.stream, b_.dnormed, b_.held_dnormed),
                         .residual_out = b_.residual,
                         .weight = norm_weight,
                         .rstd = b_.rstd,
                         .dresidual = dresidual,
                         .dweight = dnorm_weight,
                         .accumulate = accumulate});
}

}  // namespace drover
