// How long Hugging Face's init takes: draws every leaf of a model, one after the other, into one buffer.
//   bench_init examples/configs/llama3-8b.json

#include "model/init.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <vector>

#include "core/stopwatch.h"
#include "model/config.h"
#include "model/params.h"

int main(int argc, char** argv) {
    using namespace drover;
    if (argc != 2) {
        std::fputs("usage: bench_init CONFIG\n", stderr);
        return 2;
    }
    const ModelConfig config = ModelConfig::from_path(argv[1]);
    const ParamSpec spec = make_param_spec(config);
    const Stopwatch watch;
    const HfInit init(config, spec, 42);
    const double skipped = watch.seconds();
    std::vector<float> values;
    double sum = 0;
    spec.for_each_leaf([&](const LeafSpec& leaf) {
        const std::int64_t rows = leaf.shape[0];
        values.resize(static_cast<std::size_t>(leaf.shape.numel()));
        init.fill({.spec = &leaf, .row_count = rows, .column_count = leaf.shape.numel() / rows}, values);
        sum += static_cast<double>(values.back());
    });
    fmt::print(
        "{} parameters: {:.2f} s, of which {:.2f} s to find where each leaf's draws begin (check {:.6f})\n",
        spec.parameter_count(), watch.seconds(), skipped, sum);
    return 0;
}
