#include "app/bench_options.h"

#include <fmt/format.h>
#include <omp.h>

#include <CLI/CLI.hpp>

#include "app/example_configs.h"
#include "core/error.h"
#include "model/config.h"
#include "run/choose_backend.h"

namespace drover {

void BenchShape::add_to(CLI::App& command) {
    command.option_defaults()->always_capture_default();
    command.add_option("--model", model, "config.json, or the name of one of examples/configs");
    command.add_option("--dtype", dtype,
                       "bfloat16 or float32, of weights, gradients, moments and activations alike");
    command.add_option("--batch", batch, "rows per step")->check(CLI::Range(1, 1 << 20));
    command.add_option("--seq", sequence, "tokens per row")->check(CLI::Range(2, 1 << 20));
    command.add_option("--device", device, "auto takes a GPU when there is one")
        ->check(CLI::IsMember({"auto", "cpu", "cuda"}));
    command.add_option("--threads", threads, "0: OMP_NUM_THREADS, or one per processor")
        ->check(CLI::Range(0, 1 << 12));
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

void refuse_flags_before(const CLI::App& bench, const CLI::App& command) {
    for (const CLI::Option* option : bench.get_options())
        if (option->count() > 0)
            throw UsageError(
                fmt::format("{} comes before `{}`.", option->get_name(), command.get_name()),
                fmt::format("Write `drover bench {}` first and its flags after it.", command.get_name()));
}

}  // namespace drover
