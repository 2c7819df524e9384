#include "app/bench_options.h"

#include <fmt/format.h>
#include <omp.h>

#include "app/example_configs.h"
#include "args/command.h"
#include "backend/backend.h"
#include "core/error.h"
#include "model/config.h"
#include "run/choose_backend.h"

namespace drover {

void BenchShape::add_to(const Command& command) {
    command.show_defaults();
    command.add_option("--model", model, "config.json, or the name of one of examples/configs");
    command.add_option("--dtype", dtype,
                       "bfloat16 or float32, of weights, gradients, moments and activations alike");
    command.add_option("--batch", batch, "rows per step").between(1, 1 << 20);
    command.add_option("--seq", sequence, "tokens per row").between(2, 1 << 20);
    command.add_option("--device", device, "auto takes a GPU when there is one")
        .one_of({"auto", "cpu", "cuda"});
    command.add_option("--threads", threads, "0: OMP_NUM_THREADS, or one per processor").between(0, 1 << 12);
    command.add_flag("--json", json, "print one JSON object and nothing else");
}

ModelConfig BenchShape::config() const {
    return named_config(model);
}

Precision BenchShape::precision() const {
    switch (floating_dtype_from_name(dtype, "--dtype")) {
        case DType::f32:
            return Precision::fp32();
        case DType::bf16:
            return Precision::pure_bf16();
        default:
            throw UsageError(fmt::format("--dtype is \"{}\".", dtype), "Use float32 or bfloat16.");
    }
}

std::unique_ptr<Backend> BenchShape::backend() const {
    if (threads > 0) omp_set_num_threads(static_cast<int>(threads));
    return make_chosen_backend(device);
}

void refuse_flags_before(const Command& bench, const Command& command) {
    for (const std::string& flag : bench.given_flags())
        throw UsageError(
            fmt::format("{} comes before `{}`.", flag, command.name()),
            fmt::format("Write `drover bench {}` first and its flags after it.", command.name()));
}

}  // namespace drover
