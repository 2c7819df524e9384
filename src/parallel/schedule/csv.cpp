#include "parallel/schedule/csv.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "core/error.h"
#include "core/text_file.h"
#include "parallel/schedule/simulate.h"

namespace drover {
namespace {

constexpr std::string_view line_end = "\r\n";

/// The text before the next `separator`, which is taken from `rest` with it.
std::string_view take_until(std::string_view& rest, char separator) {
    const std::size_t end = std::min(rest.find(separator), rest.size());
    const std::string_view part = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    return part;
}

std::string_view without_blanks(std::string_view text) {
    const std::size_t first = text.find_first_not_of(" \t\r");
    if (first == std::string_view::npos) return {};
    return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

/// The text of a bad cell as a message can show it.
std::string shown_cell(std::string_view text) {
    constexpr std::size_t most = 24;
    std::string shown(text.substr(0, most));
    std::replace_if(
        shown.begin(), shown.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
    return text.size() > most ? shown + "…" : shown;
}

std::vector<PipelineAction> parse_row(std::string_view line, std::string_view name, std::size_t row) {
    std::vector<PipelineAction> actions;
    for (std::size_t cell = 1; !line.empty(); ++cell) {
        const std::string_view text = without_blanks(take_until(line, ','));
        if (text.empty()) continue;
        const auto action = parse_pipeline_action(text);
        if (!action)
            throw Error(fmt::format("{}: row {}, cell {}: \"{}\" is not an action of a pipeline schedule.",
                                    name, row, cell, shown_cell(text)),
                        "Write stage, kind and micro-batch, such as 2F0, 3SEND_F1 or 1UNSHARD.");
        actions.push_back(*action);
    }
    return actions;
}

/// The size of the schedule: a rank per row, and stages and micro-batches up to the largest number.
PipelineShape shape_of(const std::vector<std::vector<PipelineAction>>& ranks, std::string_view name) {
    std::int64_t stages = 0, micro_batches = 0, computations = 0;
    for (const auto& actions : ranks)
        for (const PipelineAction& action : actions) {
            stages = std::max<std::int64_t>(stages, action.stage + 1);
            micro_batches = std::max<std::int64_t>(micro_batches, action.micro_batch + 1);
            computations += is_computation(action.kind) ? 1 : 0;
        }
    const auto rows = static_cast<std::int64_t>(ranks.size());
    if (computations == 0)
        throw Error(fmt::format("{}: There is no computation in this pipeline schedule.", name),
                    "Write a row per rank with its forwards and backwards.");
    if (stages % rows != 0)
        throw Error(fmt::format("{}: The {} stages of the pipeline schedule cannot be dealt to {} rows.",
                                name, stages, rows),
                    "Give every row, which is a rank, the same number of stages.");
    // So that a large number in a short file does not become a large table.
    if (computations < stages * micro_batches)
        throw Error(fmt::format("{}: The pipeline schedule has {} computations, too few for {} stages and {} "
                                "micro-batches.",
                                name, computations, stages, micro_batches),
                    "Let every stage compute every micro-batch.");
    return {static_cast<int>(rows), static_cast<int>(stages / rows), static_cast<int>(micro_batches)};
}

}  // namespace

std::string to_csv(const PipelineSchedule& schedule) {
    std::string text;
    for (const auto& actions : schedule.ranks) {
        for (std::size_t i = 0; i < actions.size(); ++i) {
            if (i > 0) text += ',';
            text += to_text(actions[i]);
        }
        text += line_end;
    }
    return text;
}

std::string to_csv_with_idle_cells(const PipelineSchedule& schedule) {
    const bool has_parts = std::any_of(schedule.ranks.begin(), schedule.ranks.end(), [](const auto& actions) {
        return std::any_of(actions.begin(), actions.end(), [](const PipelineAction& action) {
            return action.kind == PipelineActionKind::backward_weight;
        });
    });
    const double part = has_parts ? 1 : 0.5;
    PipelineTimes times;
    times.stages = {{.forward = 1, .backward_input = part, .backward_weight = part}};
    const PipelineTimeline timeline = simulate(schedule, times);
    std::string text;
    for (const auto& actions : timeline.ranks) {
        std::size_t column = 0;
        for (const TimedAction& timed : actions) {
            const auto start = static_cast<std::size_t>(timed.start);
            text.append(start - column, ',');
            text += to_text(timed.action);
            column = start;
        }
        text += line_end;
    }
    return text;
}

PipelineSchedule parse_schedule_csv(std::string_view text, std::string_view name) {
    PipelineSchedule schedule;
    while (!text.empty())
        schedule.ranks.push_back(parse_row(take_until(text, '\n'), name, schedule.ranks.size() + 1));
    schedule.shape = shape_of(schedule.ranks, name);
    try {
        check_computation(schedule);
    } catch (const Error& error) {
        throw Error(fmt::format("{}: {}", name, error.cause()), error.remedy());
    }
    return schedule;
}

PipelineSchedule read_schedule_csv(const std::filesystem::path& path) {
    return parse_schedule_csv(read_text_file(path), path.string());
}

}  // namespace drover
