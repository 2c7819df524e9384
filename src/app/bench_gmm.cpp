#include <fmt/format.h>

#include <cmath>
#include <map>
#include <memory>
#include <numeric>
#include <optional>

#include "app/bench_options.h"
#include "app/commands.h"
#include "app/operation_timer.h"
#include "args/command.h"
#include "core/console.h"
#include "core/counter_rng.h"
#include "core/error.h"
#include "core/json.h"
#include "run/choose_backend.h"

namespace drover {
namespace {

/// The sizes of a mixture of experts.
struct Mixture {
    std::int64_t experts, hidden, ffn, chosen;

    std::string text() const { return fmt::format("{},{},{},{}", experts, hidden, ffn, chosen); }
};

struct GmmOptions {
    std::vector<std::string> mixtures = {"8,4096,14336,2", "8,2048,5632,2", "16,4096,6400,2",
                                         "64,2048,1408,6", "64,1024,512,6"};
    std::vector<std::string> ways = {"chosen", "cublas", "streams", "kernel"};
    std::int64_t tokens = 16384;
    std::string dtype = "bfloat16";
    std::string device = "auto";
    bool fp8 = false;
    bool json = false;
};

Mixture mixture_from_text(const std::string& text) {
    Mixture mixture{};
    int end = 0;
    // NOLINTNEXTLINE(cert-err34-c): the ranges are looked at below
    const int read = std::sscanf(text.c_str(), "%9ld,%9ld,%9ld,%9ld%n", &mixture.experts, &mixture.hidden,
                                 &mixture.ffn, &mixture.chosen, &end);
    if (read != 4 || static_cast<std::size_t>(end) != text.size() ||
        std::min({mixture.experts, mixture.hidden, mixture.ffn, mixture.chosen}) < 1 ||
        mixture.chosen > mixture.experts)
        throw UsageError(fmt::format("--mixture is \"{}\".", text),
                         "Give four numbers: experts, hidden size, intermediate size and experts per token, "
                         "as in 8,4096,14336,2.");
    return mixture;
}

void check_fp8_sides(const Mixture& mixture) {
    if (mixture.hidden % 16 == 0 && mixture.ffn % 16 == 0) return;
    throw UsageError(
        fmt::format("--mixture {} has a side that is no multiple of 16, which FP8 products need.",
                    mixture.text()),
        "Take other sizes, or time it without --fp8.");
}

/// The expert of each row, interleaved. The experts' shares differ as with an untrained router: by a factor
/// e^(z/2), z normal.
std::vector<std::int32_t> uneven_experts(std::int64_t rows, std::int64_t experts) {
    std::vector<float> normal(static_cast<std::size_t>(experts));
    CounterRng(42, 0).fill_normal(leaf_hash("experts"), 0, normal, 0.0f, 0.5f);
    std::vector<double> ends;
    double sum = 0;
    for (const float z : normal) ends.push_back(sum += std::exp(static_cast<double>(z)));
    std::vector<std::int32_t> expert_of;
    for (std::int64_t row = 0; row < rows; ++row) {
        // The fractional parts of multiples of the golden ratio are evenly spread over any range of rows.
        const double place = std::fmod(static_cast<double>(row) * 0.6180339887498949, 1.0) * sum;
        expert_of.push_back(static_cast<std::int32_t>(
            std::min<std::ptrdiff_t>(std::upper_bound(ends.begin(), ends.end(), place) - ends.begin(),
                                     static_cast<std::ptrdiff_t>(experts) - 1)));
    }
    return expert_of;
}

/// A tensor in FP8, as it is and transposed: rows sorted by expert, or, without offsets, the experts'
/// matrices.
struct Fp8Matrices {
    Tensor plain, transposed, scale;

    Fp8Matrices(OperationTimer& timer, const Tensor& x, std::int64_t experts, const Tensor& offsets = {}) {
        const std::int64_t rows = x.size(0), width = x.size(1);
        plain = timer.zeros(DType::f8, {rows, width});
        transposed = timer.zeros(DType::f8, offsets ? Shape{width, expert_columns(rows, experts)}
                                                    : Shape{experts * width, rows / experts});
        scale = timer.zeros(DType::f32, {1});
        const Tensor maximum = timer.zeros(DType::f32, {1});
        timer.run(AbsoluteMaximum{.x = x, .maximum = maximum});
        timer.run(Quantise{.x = x,
                           .maximum = maximum,
                           .y = plain,
                           .transposed = transposed,
                           .scale = scale,
                           .groups = offsets ? 1 : experts,
                           .offsets = offsets});
    }
};

/// The six products of a feed-forward with experts.
void time_products(OperationTimer& timer, DType dtype, bool fp8, const Mixture& mixture,
                   std::int64_t tokens) {
    const std::int64_t rows = tokens * mixture.chosen;
    const std::vector<std::int32_t> expert_of = uneven_experts(rows, mixture.experts);
    const SortByExpert sort{.experts = timer.zeros(DType::i32, {rows, 1}),
                            .offsets = timer.zeros(DType::i32, {mixture.experts + 1}),
                            .row_of_slot = timer.zeros(DType::i32, {rows}),
                            .slot_of_row = timer.zeros(DType::i32, {rows})};
    timer.put(Tensor::of(expert_of.data(), {rows, 1}), sort.experts);
    timer.run(sort);

    const auto products = [&](const std::string& place, std::int64_t in, std::int64_t out) {
        using Use = GroupedGemm::Use;
        const Tensor x = timer.normal(dtype, {rows, in}), dy = timer.normal(dtype, {rows, out});
        const Tensor weights = timer.normal(dtype, {mixture.experts * out, in});
        const auto time_product = [&](const auto& product) {
            // Once a backend has run a grouped product, sorts may do extra work for it.
            timer.run(product);
            timer.run(sort);
            timer.time(place, product);
        };
        if (fp8) {
            const Fp8Matrices x8(timer, x, mixture.experts, sort.offsets),
                dy8(timer, dy, mixture.experts, sort.offsets), weights8(timer, weights, mixture.experts);
            const auto time = [&](Use use, const Tensor& a, const Tensor& b, const Tensor& c) {
                // Scales do not matter here.
                time_product(GroupedFp8Gemm{.use = use,
                                            .a = a,
                                            .b = b,
                                            .c = c,
                                            .scale_a = x8.scale,
                                            .scale_b = x8.scale,
                                            .offsets = sort.offsets,
                                            .fast = use == Use::forward});
            };
            time(Use::forward, x8.plain, weights8.plain, timer.zeros(dtype, {rows, out}));
            time(Use::data_gradient, dy8.plain, weights8.transposed, timer.zeros(dtype, {rows, in}));
            time(Use::weight_gradient, dy8.transposed, x8.transposed, weights);
            return;
        }
        const auto time = [&](Use use, const Tensor& a, const Tensor& b, const Tensor& c) {
            time_product(GroupedGemm{.use = use, .a = a, .b = b, .c = c, .offsets = sort.offsets});
        };
        time(Use::forward, x, weights, timer.zeros(dtype, {rows, out}));
        time(Use::data_gradient, dy, weights, timer.zeros(dtype, {rows, in}));
        time(Use::weight_gradient, dy, x, weights);
    };
    products("gate and up", mixture.hidden, 2 * mixture.ffn);
    products("down", mixture.ffn, mixture.hidden);
    timer.drop_operands();
}

/// The names for --way; "chosen" is the device's own choice by size.
const std::map<std::string, std::optional<GroupedGemmMethod>> methods = {
    {"chosen", std::nullopt},
    {"cublas", GroupedGemmMethod::cublas},
    {"streams", GroupedGemmMethod::streams},
    {"kernel", GroupedGemmMethod::kernel}};

/// The TFLOP/s of one product with every method.
struct Row {
    std::string mixture, product, place;
    std::vector<double> rates;
};

void run_bench_gmm(const GmmOptions& options) {
    const DType dtype = floating_dtype_from_name(options.dtype, "--dtype");
    std::vector<Mixture> mixtures;
    for (const std::string& text : options.mixtures) mixtures.push_back(mixture_from_text(text));
    std::string description;
    std::vector<std::string> ways;
    std::vector<Row> rows;
    const auto measure = [&](const std::string& way) {
        BackendSettings settings = backend_settings_from_environment();
        settings.grouped_gemm = methods.at(way);
        const std::unique_ptr<Backend> backend = make_chosen_backend(options.device, 0, settings);
        description = backend->description();
        if (backend->device() == Device::cpu && settings.grouped_gemm) return;
        ways.push_back(way);
        OperationTimer timer(*backend);
        for (const Mixture& mixture : mixtures) {
            if (options.fp8) check_fp8_sides(mixture);
            time_products(timer, dtype, options.fp8, mixture, options.tokens);
        }
        for (std::size_t i = 0; i < timer.results().size(); ++i) {
            const TimedOperation& timed = timer.results()[i];
            if (rows.size() <= i)
                rows.push_back({mixtures[i / 6].text(), std::string(timed.cost.name), timed.place, {}});
            rows[i].rates.push_back(timed.cost.flops / timed.seconds / 1e12);
        }
    };
    for (const std::string& way : options.ways) measure(way);

    if (options.json) {
        Json list = Json::array();
        for (const Row& row : rows) {
            Json rates;
            for (std::size_t i = 0; i < ways.size(); ++i) rates[ways[i]] = row.rates[i];
            list.push_back(
                {{"mixture", row.mixture}, {"name", row.product}, {"of", row.place}, {"tflops", rates}});
        }
        const Json report = {{"device", description},
                             {"dtype", options.dtype},
                             {"fp8", options.fp8},
                             {"tokens", options.tokens},
                             {"products", list}};
        print_result("{}\n", report.dump());
        return;
    }
    print_result("{}; experts' products in {}{}, {} tokens, TFLOP/s\n  {:<16} {:<32} {:<12}", description,
                 options.fp8 ? "FP8, results in " : "", options.dtype, options.tokens, "E,H,I,chosen",
                 "product", "of");
    for (const std::string& way : ways) print_result(" {:>9}", way);
    print_result("\n");
    for (const Row& row : rows) {
        print_result("  {:<16} {:<32} {:<12}", row.mixture, row.product, row.place);
        for (const double rate : row.rates) print_result(" {:>9.3f}", rate);
        print_result("\n");
    }
}

}  // namespace

Command add_bench_gmm_command(const Command& bench) {
    auto options = std::make_shared<GmmOptions>();
    const Command command = bench.add_command(
        "gmm",
        "Run the products of experts alone, with groups of uneven sizes, in every way that the device has\n"
        "(on a GPU: as chosen by itself, and each value of DROVER_GROUPED_GEMM), and print TFLOP/s.\n"
        "Example: drover bench gmm --mixture 64,2048,1408,6 --tokens 16384");
    command.show_defaults();
    command.add_option("--mixture", options->mixtures,
                       "experts, hidden size, intermediate size, experts per token; may be repeated");
    command.add_option("--way", options->ways, "chosen: as the device would; may be repeated")
        .one_of({"chosen", "cublas", "streams", "kernel"});
    command.add_option("--tokens", options->tokens, "before they are given to several experts")
        .between(1, 1 << 20);
    command.add_option("--dtype", options->dtype, "bfloat16 or float32");
    command.add_flag("--fp8", options->fp8,
                     "operands in FP8, results in --dtype; making the operands is not timed");
    command.add_option("--device", options->device, "auto takes a GPU when there is one")
        .one_of({"auto", "cpu", "cuda"});
    command.add_flag("--json", options->json, "print one JSON object and nothing else");
    command.set_action([=] {
        refuse_flags_before(bench, command);
        run_bench_gmm(*options);
    });
    return command;
}

}  // namespace drover
