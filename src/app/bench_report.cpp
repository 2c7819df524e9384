#include "app/bench_report.h"

#include <fmt/format.h>

namespace drover {
namespace {

constexpr std::string_view table_line = "  {:<28} {:>6} {:>10} {:>7} {:>16} {:>8}\n";

std::string percent(double share) {
    return fmt::format("{:.1f} %", 100 * share);
}

std::string milliseconds(double seconds) {
    return fmt::format("{:.2f} ms", 1e3 * seconds);
}

double seconds_of(std::span<const OperationTotal> operations) {
    double seconds = 0;
    for (const OperationTotal& operation : operations) seconds += operation.seconds;
    return seconds;
}

}  // namespace

std::string text_of(const MachinePeaks& peaks) {
    const std::string rated =
        peaks.rated_bf16_flops > 0 ? fmt::format(" (stated: {:.0f})", peaks.rated_bf16_flops / 1e9) : "";
    return fmt::format("fp32 {:.1f} GFLOP/s, bf16 {:.1f} GFLOP/s{}, copy {:.1f} GB/s", peaks.fp32_flops / 1e9,
                       peaks.bf16_flops / 1e9, rated, peaks.bandwidth / 1e9);
}

Json json_of(const MachinePeaks& peaks) {
    return {{"fp32_gflops", peaks.fp32_flops / 1e9},
            {"bf16_gflops", peaks.bf16_flops / 1e9},
            {"copy_gb_per_second", peaks.bandwidth / 1e9}};
}

std::string text_of(const OperationRate& rate) {
    return fmt::format("{:.1f} {}", rate.per_second / 1e9, rate.arithmetic ? "GFLOP/s" : "GB/s");
}

std::string operations_table(std::span<const OperationTotal> operations, double whole_seconds,
                             const MachinePeaks& peaks) {
    std::string table =
        fmt::format(fmt::runtime(table_line), "operation", "calls", "time", "share", "rate", "of peak");
    for (const OperationTotal& operation : operations) {
        const OperationRate rate = rate_of(operation.cost, operation.seconds, peaks);
        table += fmt::format(fmt::runtime(table_line), operation.cost.name, operation.calls,
                             milliseconds(operation.seconds), percent(operation.seconds / whole_seconds),
                             text_of(rate), percent(rate.of_peak));
    }
    const double outside = whole_seconds - seconds_of(operations);
    return table + fmt::format(fmt::runtime(table_line), "outside operations", "", milliseconds(outside),
                               percent(outside / whole_seconds), "", "");
}

Json operations_json(std::span<const OperationTotal> operations, double whole_seconds,
                     const MachinePeaks& peaks) {
    Json list = Json::array();
    for (const OperationTotal& operation : operations) {
        const OperationRate rate = rate_of(operation.cost, operation.seconds, peaks);
        list.push_back({{"name", operation.cost.name},
                        {"calls", operation.calls},
                        {"ms", 1e3 * operation.seconds},
                        {"share", operation.seconds / whole_seconds},
                        {rate.arithmetic ? "gflops" : "gb_per_second", rate.per_second / 1e9},
                        {"of_peak", rate.of_peak}});
    }
    return list;
}

}  // namespace drover
