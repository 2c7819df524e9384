#include "run/pipeline_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/number_text.h"
#include "model/partition.h"
#include "train/engine/pipeline_plan.h"
#include "train/engine/weights_wait.h"

namespace drover {
namespace {

/// More are not simulated: the bubble is small by then.
constexpr int most_simulated = 1024;

int stages_of(const PlannedPipeline& pipeline) {
    return pipeline.mesh.pp * pipeline.options.pipeline.chunks;
}

PipelinePlan plan_of(const PlannedPipeline& pipeline, const PipelineSettings& settings, int rank) {
    return {settings, pipeline.mesh.pp, rank,
            why_weights_cannot_wait(pipeline.options, pipeline.mesh.data).empty()};
}

/// Micro-batches that a rank has room for, in all its stages.
int slots_of(const PlannedPipeline& pipeline, int rank) {
    const PipelinePlan plan = plan_of(pipeline, pipeline.options.pipeline, rank);
    int slots = 0;
    for (int chunk = 0; chunk < plan.chunks(); ++chunk) slots += plan.slots(chunk);
    return slots;
}

StageWork work_of(const PlannedPipeline& pipeline) {
    return {.row_length = pipeline.options.model.row_length, .recompute = pipeline.options.model.recompute};
}

double simulated_bubble(const PlannedPipeline& pipeline, int micro_batches, const std::vector<int>& cuts) {
    std::vector<StageTimes> times;
    for (const ModelChunk& chunk : cut_into_stages(pipeline.config, stages_of(pipeline), cuts))
        times.push_back(stage_times(pipeline.config, chunk, work_of(pipeline)));
    PipelineSettings settings = pipeline.options.pipeline;
    settings.micro_batches = micro_batches;
    return plan_of(pipeline, settings, 0).simulated(micro_batches, times).bubble_fraction();
}

long percent(double fraction) {
    return std::lround(100 * fraction);
}

int next_multiple(int count, int divisor) {
    return (count + divisor - 1) / divisor * divisor;
}

/// "embedding, 0-7", "8", "24-31, head"
std::string layers_text(const ModelChunk& chunk) {
    const std::int64_t first = chunk.blocks.begin, last = chunk.blocks.end() - 1;
    return fmt::format("{}{}{}", chunk.embeds ? "embedding, " : "",
                       first == last ? fmt::format("{}", first) : fmt::format("{}-{}", first, last),
                       chunk.has_head ? ", head" : "");
}

}  // namespace

std::string pipeline_table(const PlannedPipeline& pipeline, const std::vector<RankMemory>& memory,
                           bool trains) {
    const PipelineSettings& settings = pipeline.options.pipeline;
    const std::vector<ModelChunk> stages =
        cut_into_stages(pipeline.config, stages_of(pipeline), settings.cuts);
    std::vector<std::string> layers;
    std::size_t width = 0;
    for (int rank = 0; rank < pipeline.mesh.pp; ++rank) {
        std::string& text = layers.emplace_back();
        for (int stage = rank; stage < stages_of(pipeline); stage += pipeline.mesh.pp)
            text += (text.empty() ? "" : "; ") + layers_text(stages[static_cast<std::size_t>(stage)]);
        width = std::max(width, text.size());
    }
    std::string text =
        fmt::format("Pipeline of {} ranks{}:\n  {:>4}  {:<{}}{}{:>14}\n", pipeline.mesh.pp,
                    trains ? fmt::format(", {}, {} per update", name_of(settings.schedule, settings.chunks),
                                         counted(settings.micro_batches, "micro-batch", "micro-batches"))
                           : "",
                    "rank", "layers", width, trains ? "  slots" : "", "memory");
    for (int rank = 0; rank < pipeline.mesh.pp; ++rank) {
        const auto index = static_cast<std::size_t>(rank);
        text += fmt::format("  {:>4}  {:<{}}{}{:>14}\n", rank, layers[index], width,
                            trains ? fmt::format("{:>7}", slots_of(pipeline, rank)) : "",
                            bytes_text(memory[index].device.total));
    }
    text.pop_back();
    return text;
}

double bubble_fraction(const PlannedPipeline& pipeline) {
    const PipelineSettings& settings = pipeline.options.pipeline;
    return simulated_bubble(pipeline, std::min(settings.micro_batches, most_simulated), settings.cuts);
}

std::string bubble_text(const PlannedPipeline& pipeline, bool balanced) {
    const PipelineSettings& settings = pipeline.options.pipeline;
    const int micro_batches = settings.micro_batches;
    const long now = percent(bubble_fraction(pipeline));
    std::string text = fmt::format(
        "Counting floating-point operations, the ranks are idle {}{} % of the time (bubble) with {}",
        micro_batches > most_simulated ? "at most " : "", now,
        counted(micro_batches, "micro-batch", "micro-batches"));
    if (const int more = next_multiple(2 * std::min(micro_batches, most_simulated), pipeline.mesh.pp);
        more <= most_simulated)
        if (const long then = percent(simulated_bubble(pipeline, more, settings.cuts)); then < now)
            text += fmt::format("; {} would give {} %", more, then);
    if (!balanced) {
        const std::vector<int> cuts = balanced_cuts(pipeline.config, stages_of(pipeline), work_of(pipeline));
        const long then = percent(simulated_bubble(pipeline, std::min(micro_batches, most_simulated), cuts));
        if (then + 1 < now) text += fmt::format("; --pipeline_cuts balanced would give {} %", then);
    }
    return text + ".";
}

std::string uneven_turns_text(const PlannedPipeline& pipeline) {
    const PipelineSettings& settings = pipeline.options.pipeline;
    const int whole = next_multiple(settings.micro_batches, pipeline.mesh.pp);
    if (settings.chunks == 1 || whole == settings.micro_batches) return {};
    return fmt::format(
        "With several stages per rank, micro-batches take turns of {}: {} are run in the order of {}, in "
        "which ranks are idle where micro-batches are missing.",
        pipeline.mesh.pp, settings.micro_batches, whole);
}

std::string whole_backwards_text(const PlannedPipeline& pipeline) {
    const std::string_view why = why_weights_cannot_wait(pipeline.options, pipeline.mesh.data);
    if (pipeline.options.pipeline.schedule != PipelineScheduleKind::zero_bubble || why.empty()) return {};
    return fmt::format(
        "--pipeline_schedule zero_bubble: weight gradients are computed at once and fill no bubble, because "
        "{}.",
        why);
}

}  // namespace drover
