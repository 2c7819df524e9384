#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "parallel/schedule/schedule.h"

/// PyTorch's file of a pipeline schedule: a row per rank, a cell per action, lines that end in \r\n.
namespace drover {

/// The schedule without idle cells.
std::string to_csv(const PipelineSchedule& schedule);

/// A schedule of computations alone, with an empty cell where a rank is idle if every action takes the same
/// time: a column is a moment. Beside backwards in two parts a whole one takes two columns.
std::string to_csv_with_idle_cells(const PipelineSchedule& schedule);

/// The schedule of such a text; empty cells are skipped. Its computations are complete (check_computation).
/// Error with file (`name`), row and cell, counted from 1.
PipelineSchedule parse_schedule_csv(std::string_view text, std::string_view name);
PipelineSchedule read_schedule_csv(const std::filesystem::path& path);

}  // namespace drover
