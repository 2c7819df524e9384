#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <vector>

#include "app/bench_adapters.h"
#include "app/bench_data.h"
#include "app/bench_mesh.h"
#include "app/bench_options.h"
#include "app/bench_report.h"
#include "app/commands.h"
#include "args/command.h"
#include "core/console.h"
#include "core/error.h"
#include "core/number_text.h"
#include "core/stopwatch.h"
#include "core/this_process.h"
#include "model/flops.h"
#include "model/params.h"
#include "run/engine_settings.h"
#include "train/callbacks/communication_report.h"
#include "train/engine/train_engine.h"

namespace drover {
namespace {

constexpr std::uint64_t seed = 42;
constexpr std::int64_t least_warm_up_steps = 2;

struct BenchOptions {
    BenchShape shape;
    BenchData data;
    std::string optimizer = "adamw_torch";
    std::string recompute = "none";
    std::string fp8 = "none";
    std::string moe = "gmm";
    std::int64_t steps = 8;
    std::int64_t layers = 0;  ///< 0: the config's number
    std::string init = "hf";
    bool fsdp = false;
    bool offload = false;
    bool comm_stats = false;
    BenchAdapters adapters;
};

/// Uses the names of run_clm's flags.
MoeMode moe_mode_from_name(const std::string& name) {
    return name == "static" ? MoeMode::all_tokens : name == "gmm_stack" ? MoeMode::stacked : MoeMode::grouped;
}

/// The settings of a run with the same steps.
RunSettings bench_settings(const BenchOptions& options) {
    RunSettings settings;
    settings.step.recompute = {recompute_from_name(options.recompute, "--recompute")};
    settings.step.fp8 = fp8_recipe_from_name(options.fp8, "--fp8");
    settings.step.moe_mode = moe_mode_from_name(options.moe);
    settings.step.init = init_kind_from_name(options.init, "--init");
    settings.step.on_non_finite = OnNonFinite::proceed;  // checked once, at the end
    settings.optimizer = OptimizerSettings::named(options.optimizer, 0);
    return settings;
}

/// What the model must compute per token, as defined in --help: recomputed activations do not count.
double flops_per_token(const ModelConfig& config, std::int64_t sequence, double targets,
                       std::int64_t adapter_parameters) {
    const double table =
        config.tie_word_embeddings ? 0 : static_cast<double>(config.vocab_size * config.hidden_size);
    const int passes = adapter_parameters > 0 ? 2 : 3;  // a frozen weight has no gradient
    double flops = 2 * passes * (static_cast<double>(active_parameter_count(config)) - table);
    flops -= passes * (1 - targets) * head_flops(config);
    flops += 6 * static_cast<double>(adapter_parameters);
    for (int block = 0; block < config.num_hidden_layers; ++block)
        flops += 3 * block_flops(config, block, sequence).attention;
    return flops;
}

bool are_equal_in_size(std::span<const Batch> batches) {
    return std::all_of(batches.begin(), batches.end(), [&](const Batch& batch) {
        return batch.sequence_length.empty() && batch.tokens() == batches[0].tokens();
    });
}

/// Libraries choose their kernels when they first see a shape, so each has had its turn before time counts.
std::int64_t warm_up_steps(std::span<const Batch> batches) {
    const auto shapes = static_cast<std::int64_t>(batches.size());
    return are_equal_in_size(batches) ? least_warm_up_steps : std::max(shapes, least_warm_up_steps);
}

double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    const std::size_t middle = values.size() / 2;
    return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

/// The measurements.
struct Measurements {
    double step_seconds = 0;  ///< median of the steps after warm-up
    double tokens_per_second = 0;
    double flops_per_second = 0;
    double mfu = 0;
    double first_step_seconds = 0;
    double loss = 0;
    CommunicationTimes communication;        ///< of the steps after warm-up
    std::int64_t peak_bytes = 0;             ///< of the process, on the host
    std::size_t library_bytes = 0;           ///< on the device, in addition to the plan
    std::vector<OperationTotal> operations;  ///< of one additional step
    double observed_seconds = 0;             ///< that step's time
    MachinePeaks peaks;
};

constexpr double learning_rate = 1e-5;

/// Times whole steps.
Measurements time_steps(TrainEngine& engine, Backend& backend, BenchMesh& mesh,
                        std::span<const Batch> batches, std::int64_t steps) {
    Measurements result;
    std::vector<double> seconds;
    double tokens = 0, all_seconds = 0;
    const std::int64_t warm_up = warm_up_steps(batches);
    for (std::int64_t i = 0; i < steps; ++i) {
        if (i == warm_up) result.communication -= mesh.communication_times();
        const Stopwatch watch;
        const auto turn = static_cast<std::size_t>(i) % batches.size();
        result.loss = engine.step(batches.subspan(turn, 1), learning_rate).loss;
        backend.synchronize(backend.main_stream());
        if (i >= warm_up) {
            seconds.push_back(watch.seconds());
            all_seconds += seconds.back();
            tokens += static_cast<double>(batches[turn].attended_tokens());
        }
        if (i == 0) result.first_step_seconds = seconds_since_process_start();
    }
    result.communication += mesh.communication_times();
    result.step_seconds = median(seconds);
    // Steps of equal size have a typical one; of others, all count.
    result.tokens_per_second = are_equal_in_size(batches)
                                   ? static_cast<double>(batches[0].tokens()) / result.step_seconds
                                   : tokens / all_seconds;
    if (!std::isfinite(result.loss))
        throw Error(fmt::format("The loss became {} within {} steps.", result.loss, steps),
                    "Such a run measures nothing; use another config or dtype.");
    return result;
}

Measurements measure(TrainEngine& engine, Backend& backend, BenchMesh& mesh, std::span<const Batch> batches,
                     std::int64_t steps) {
    Measurements result = time_steps(engine, backend, mesh, batches, steps);
    {
        const OperationProfile profile(backend);
        const Stopwatch watch;
        engine.step(batches.first(1), learning_rate);
        backend.synchronize(backend.main_stream());
        result.observed_seconds = watch.seconds();
        result.operations = profile.totals();
    }

    // The peaks are measured last: their buffers must not count as training memory, nor their time as time to
    // the first step.
    result.peak_bytes = peak_resident_bytes();
    result.library_bytes = backend.untracked_bytes();
    result.peaks = backend.measure_peaks();
    return result;
}

/// A model that is trained in some way.
struct Trained {
    std::unique_ptr<TrainEngine> engine;
    std::int64_t parameters = 0;          ///< that are trained
    std::int64_t adapter_parameters = 0;  ///< of these, those of adapters
};

Trained make_trained(const ModelConfig& config, TrainEngineOptions settings, const Adapters& adapters,
                     Backend& backend, const Mesh& mesh) {
    settings.model.adapters = adapters;
    Trained trained{.engine = std::make_unique<TrainEngine>(config, settings, backend, mesh)};
    trained.engine->model_spec().for_each_leaf([&](const LeafSpec& leaf) {
        if (leaf.trained) trained.parameters += leaf.shape.numel();
        if (leaf.is_adapter()) trained.adapter_parameters += leaf.shape.numel();
    });
    return trained;
}

void start(TrainEngine& engine, const Adapters& adapters) {
    engine.allocate();
    engine.initialize_weights(seed);
    if (adapters.any()) engine.initialize_adapters(seed);
}

/// One way of training a model, beside others.
struct ComparedStep {
    std::string name;
    std::int64_t trained_parameters = 0;
    double seconds = 0;
    double tokens_per_second = 0;
    std::size_t planned_bytes = 0;
};

Json json_of(const ComparedStep& step) {
    return {{"name", step.name},
            {"trained_parameters", step.trained_parameters},
            {"step_ms", 1e3 * step.seconds},
            {"tokens_per_second", step.tokens_per_second},
            {"planned_memory_bytes", step.planned_bytes}};
}

/// The steps of whole, frozen and adapted models, in this order.
std::string comparison_text(std::span<const ComparedStep> steps) {
    std::string text = fmt::format("{:<20} {:>14} {:>12} {:>10} {:>12}\n", "trained", "parameters",
                                   "ms per step", "tok/s", "memory plan");
    for (const ComparedStep& step : steps)
        text += fmt::format("{:<20} {:>14} {:>12.1f} {:>10.0f} {:>12}\n", step.name, step.trained_parameters,
                            1e3 * step.seconds, step.tokens_per_second, bytes_text(step.planned_bytes));
    const double whole = steps[0].seconds, frozen = steps[1].seconds, adapted = steps[2].seconds;
    return text + fmt::format(
                      "LoRA's own cost: {:.1f} ms, {:.1f} % of a step without adapters; its step takes "
                      "{:.3f} of one that trains everything.\n",
                      1e3 * (adapted - frozen), 100 * (adapted / frozen - 1), adapted / whole);
}

/// The contents of a GPU's memory; empty for the CPU, whose peak is the process's.
std::string device_memory(const Backend& backend, const TrainEngine& engine, const Measurements& m) {
    if (backend.device() == Device::cpu) return {};
    return fmt::format("; on the GPU {} as planned, {} for CUDA, its libraries and other programs",
                       bytes_text(engine.memory_plan().total), bytes_text(m.library_bytes));
}

Json communication_json(const CommunicationTimes& sums, std::int64_t steps) {
    const auto counted = static_cast<double>(steps);
    return {{"collectives", static_cast<double>(sums.collectives) / counted},
            {"under_way_seconds", sums.busy_seconds / counted},
            {"waited_seconds", sums.waited_seconds / counted}};
}

Json json_of(const BenchOptions& options, const ModelConfig& config, const TrainEngine& engine,
             const Backend& backend, const Measurements& m, std::int64_t trained_parameters,
             std::int64_t warm_up) {
    return {{"model", options.shape.model},
            {"dtype", options.shape.dtype},
            {"batch", options.shape.batch},
            {"seq", options.shape.sequence},
            {"layers", config.num_hidden_layers},
            {"optim", options.optimizer},
            {"recompute", options.recompute},
            {"fp8", options.fp8},
            {"moe", options.moe},
            {"fsdp", options.fsdp},
            {"offload", options.offload},
            {"targets", options.data.targets},
            {"example_length", options.data.length},
            {"packed", options.data.packed},
            {"lora_r", options.adapters.rank},
            {"trained_parameters", trained_parameters},
            {"steps", options.steps},
            {"warm_up_steps", warm_up},
            {"device", backend.description()},
            {"parameters", engine.store().spec().parameter_count()},
            {"tokens_per_second", m.tokens_per_second},
            {"tflops", m.flops_per_second / 1e12},
            {"mfu", m.mfu},
            {"step_ms", 1e3 * m.step_seconds},
            {"first_step_seconds", m.first_step_seconds},
            {"peak_memory_bytes", m.peak_bytes},
            {"planned_memory_bytes", engine.memory_plan().total},
            {"planned_host_memory_bytes", engine.host_memory_plan().total},
            {"library_memory_bytes", m.library_bytes},
            {"loss", m.loss},
            {"peaks", json_of(m.peaks)},
            {"operations", operations_json(m.operations, m.observed_seconds, m.peaks)}};
}

void run_bench(const BenchOptions& options) {
    ModelConfig config = options.shape.config();
    if (options.layers > 0) config.num_hidden_layers = options.layers;
    const Precision precision = options.shape.precision();
    const std::unique_ptr<Backend> backend = options.shape.backend();
    BenchMesh mesh(options.fsdp, options.comm_stats, *backend);
    MeshPlan plan;
    if (options.fsdp) plan.sharding = Sharding::zero3;
    TrainEngineOptions settings =
        engine_options(bench_settings(options), precision, config, plan, backend->device(),
                       options.shape.batch, options.shape.sequence);
    settings.offload_optimizer = options.offload;  // also on a CPU, where a run would not do it
    const std::vector<Batch> batches = options.data.batches(options.shape, config.vocab_size);
    const std::int64_t warm_up = warm_up_steps(batches);
    if (options.steps <= warm_up)
        throw UsageError(fmt::format("--steps is {}, and the first {} are for warm-up: batches of different "
                                     "sizes have a turn each.",
                                     options.steps, warm_up),
                         fmt::format("Give --steps {} or more.", warm_up + 1));
    const Adapters adapters = options.adapters.of(config);
    Trained trained = make_trained(config, settings, adapters, *backend, *mesh);
    TrainEngine& engine = *trained.engine;
    if (!options.shape.json)
        print_result(
            "{}; {}, {:.2f} M parameters in {}{}, {} × {} tokens, {}\nMemory:\n{}", backend->description(),
            options.shape.model, static_cast<double>(engine.store().spec().parameter_count()) / 1e6,
            options.shape.dtype,
            adapters.any()
                ? fmt::format(", {:.2f} M of them trained", static_cast<double>(trained.parameters) / 1e6)
                : "",
            options.shape.batch, options.shape.sequence, options.optimizer, engine.memory_plan().table());
    if (!options.shape.json && engine.host_memory_plan().total > 0)
        print_result("In the host's memory:\n{}", engine.host_memory_plan().table());
    start(engine, adapters);
    Measurements m = measure(engine, *backend, mesh, batches, options.steps);
    m.flops_per_second =
        m.tokens_per_second * flops_per_token(config, std::llround(mean_length_around_tokens(batches)),
                                              options.data.targets, trained.adapter_parameters);
    m.mfu = m.flops_per_second / m.peaks.reference_flops(precision.parameters);
    const std::int64_t counted_steps = options.steps - warm_up;
    const ComparedStep adapted{.name = fmt::format("adapters, r = {}", options.adapters.rank),
                               .trained_parameters = trained.parameters,
                               .seconds = m.step_seconds,
                               .tokens_per_second = m.tokens_per_second,
                               .planned_bytes = engine.memory_plan().total};
    // The models are trained one after the other: a GPU need not have room for two.
    const auto compare = [&] {
        trained.engine.reset();
        std::vector<ComparedStep> steps;
        for (const auto& [name, others] :
             {std::pair("everything", Adapters()), std::pair("one norm", BenchAdapters::next_to_nothing())}) {
            const Trained other = make_trained(config, settings, others, *backend, *mesh);
            start(*other.engine, others);
            const Measurements times = time_steps(*other.engine, *backend, mesh, batches, options.steps);
            steps.push_back({.name = name,
                             .trained_parameters = other.parameters,
                             .seconds = times.step_seconds,
                             .tokens_per_second = times.tokens_per_second,
                             .planned_bytes = other.engine->memory_plan().total});
        }
        steps.push_back(adapted);
        return steps;
    };
    if (options.shape.json) {
        Json report = json_of(options, config, engine, *backend, m, trained.parameters, warm_up);
        if (options.comm_stats) report["communication"] = communication_json(m.communication, counted_steps);
        if (options.adapters.compare) {
            report["comparison"] = Json::array();
            for (const ComparedStep& step : compare()) report["comparison"].push_back(json_of(step));
        }
        print_result("{}\n", report.dump());
        return;
    }
    print_result(
        "{:.0f} tok/s, {:.1f} GFLOP/s, MFU {:.1f} %; {:.1f} ms per step, median of {} after {} for warm-up; "
        "loss {:.3f}\n"
        "first step done {:.2f} s after start; peak resident memory {}{}\n"
        "Machine's peaks: {}\nOne more step of {:.1f} ms, by operation:\n{}",
        m.tokens_per_second, m.flops_per_second / 1e9, 100 * m.mfu, 1e3 * m.step_seconds, counted_steps,
        warm_up, m.loss, m.first_step_seconds, bytes_text(static_cast<std::size_t>(m.peak_bytes)),
        device_memory(*backend, engine, m), text_of(m.peaks), 1e3 * m.observed_seconds,
        operations_table(m.operations, m.observed_seconds, m.peaks));
    if (options.comm_stats) print_result("{}", communication_text(m.communication, counted_steps));
    if (options.adapters.compare) print_result("{}", comparison_text(compare()));
}

}  // namespace

void add_bench_command(const Command& app) {
    auto options = std::make_shared<BenchOptions>();
    const Command command = app.add_command(
        "bench",
        "Run whole training steps (forward, backward, clipping at 1.0, update) on random tokens and print\n"
        "tokens and FLOP per second, MFU, the time of each operation with its rate and its share of what "
        "this\n"
        "machine can do at best (measured), the memory plan, peak resident memory, and the seconds from the\n"
        "start of the program to the end of the first step.\n"
        "FLOP per token = 6 · (N − V · H) + 6 · L · H · T: N parameters that act on a token, V · H those of "
        "an\n"
        "untied embedding table, L blocks, H = heads · head size, T tokens per row, of which a token sees "
        "half\n"
        "(with a sliding window w < T, 12 · L · H · w · (1 − w / 2T)). With --lora_r, 4 · (N − V · H) and 6 "
        "for\n"
        "every parameter of an adapter. What is recomputed does not count. MFU is\n"
        "against the peak of --dtype. A rate above 100 % of the peak in GB/s means that a cache helped.\n"
        "Example: drover bench --model llama-5m --batch 8 --seq 256 --dtype float32");
    options->shape.add_to(command);
    command.add_option("--optim", options->optimizer, "adamw_torch, adafactor, sgd, adagrad or rmsprop");
    command.add_option("--recompute", options->recompute,
                       "none, selective, selective_mlp, selective_attention or full");
    command.add_option("--fp8", options->fp8, "none, tensorwise or blockwise");
    command
        .add_option("--moe", options->moe,
                    "gmm: experts' products over their own tokens; gmm_stack: the same with the experts' "
                    "weights copied together first; static: every expert computes all tokens")
        .one_of({"gmm", "gmm_stack", "static"});
    command
        .add_option("--steps", options->steps,
                    "steps to run, the first two of them for warm-up; with --example_length the first four, "
                    "one for each of the batches that take turns")
        .between(least_warm_up_steps + 1, 1 << 30);
    command.add_option("--init", options->init, "hf: transformers' weights for the seed; counter: faster")
        .one_of({"hf", "counter"});
    command.add_option("--layers", options->layers, "blocks of the model; 0: as the config says")
        .between(0, 1 << 12);
    command.add_flag("--offload", options->offload,
                     "the optimizer's state in the host's memory, as with --fsdp \"full_shard offload\"");
    options->data.add_to(command);
    options->adapters.add_to(command);
    const Flag fsdp = command.add_flag(
        "--fsdp", options->fsdp,
        "as one of several processes with --fsdp full_shard, but alone: weights are gathered block by block "
        "and gradients scattered, from memory to memory");
    command
        .add_flag("--comm_stats", options->comm_stats,
                  "say how long collectives were under way in a step, and waited for")
        .needs(fsdp);
    const Command ops = add_bench_ops_command(command);
    const Command gmm = add_bench_gmm_command(command);
    command.set_action([=] {
        if (!ops.is_given() && !gmm.is_given()) run_bench(*options);
    });
}

}  // namespace drover
