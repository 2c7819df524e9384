#include "args/pipeline_arguments.h"

#include <fmt/format.h>

#include <charconv>

#include "core/error.h"
#include "core/words.h"

namespace drover {
namespace {

PipelineScheduleKind schedule_kind(const std::string& name, std::int64_t chunks) {
    if (name == "interleaved" && chunks == 1)
        throw UsageError(
            "--pipeline_schedule interleaved needs several stages per process, but --virtual_pipeline_size "
            "is 1.",
            "Give --virtual_pipeline_size 2 or more, or use --pipeline_schedule 1f1b.");
    if (name == "1f1b" && chunks > 1)
        throw UsageError(
            fmt::format("--pipeline_schedule 1f1b has one stage per process, but --virtual_pipeline_size is "
                        "{}.",
                        chunks),
            "Use --pipeline_schedule interleaved, or leave it out.");
    return name == "zero_bubble" ? PipelineScheduleKind::zero_bubble
                                 : PipelineScheduleKind::one_forward_one_backward;
}

/// "3,7,12"
std::vector<int> layer_list(const std::string& text) {
    std::vector<int> layers;
    for (const std::string& word : split_words(text, ',')) {
        int layer = 0;
        const char* end = word.data() + word.size();
        const auto [stop, error] = std::from_chars(word.data(), end, layer);
        if (error != std::errc() || stop != end || layer < 0)
            throw UsageError(
                fmt::format("--pipeline_cuts has \"{}\", which is not the number of a layer.", word),
                "Name the first layer of every stage but the first, as in 3,7,12, or use balanced.");
        layers.push_back(layer);
    }
    if (layers.empty())
        throw UsageError("--pipeline_cuts is empty.",
                         "Name the first layer of every stage but the first, as in 3,7,12, or use balanced.");
    return layers;
}

}  // namespace

PipelineArguments pipeline_arguments(const Arguments& arguments) {
    const std::int64_t ranks = arguments.integer("pipeline_parallel_size");
    const std::int64_t chunks = arguments.integer("virtual_pipeline_size");
    const auto schedule = arguments.optional_text("pipeline_schedule");
    const auto cuts = arguments.optional_text("pipeline_cuts");
    if (ranks == 1 && (chunks > 1 || schedule || cuts))
        throw UsageError(
            fmt::format("--{} is given, but there is no pipeline.", chunks > 1 ? "virtual_pipeline_size"
                                                                    : schedule ? "pipeline_schedule"
                                                                               : "pipeline_cuts"),
            "Give --pipeline_parallel_size too, or leave it out.");
    PipelineArguments pipeline{.ranks = static_cast<int>(ranks),
                               .settings = {.schedule = schedule_kind(schedule.value_or(""), chunks),
                                            .chunks = static_cast<int>(chunks)}};
    if (cuts == "balanced")
        pipeline.balanced = true;
    else if (cuts)
        pipeline.settings.cuts = layer_list(*cuts);
    return pipeline;
}

}  // namespace drover
