#include "api/launch_environment.h"

#include <gtest/gtest.h>

#include <map>

#include "core/error.h"

namespace drover {
namespace {

LaunchEnvironment read(const std::map<std::string, std::string>& variables) {
    return read_launch_environment([&](const char* name) -> std::optional<std::string> {
        const auto found = variables.find(name);
        return found == variables.end() ? std::nullopt : std::optional(found->second);
    });
}

void expect(const LaunchEnvironment& found, int rank, int processes) {
    EXPECT_EQ(found.rank, rank);
    EXPECT_EQ(found.processes, processes);
    EXPECT_EQ(found.has_others(), processes > 1);
}

TEST(LaunchEnvironment, Launchers) {
    expect(read({}), 0, 1);
    expect(read({{"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_RANK", "3"}}), 3, 4);
    expect(read({{"PMI_SIZE", "2"}, {"PMI_RANK", "1"}}), 1, 2);
    expect(read({{"SLURM_NTASKS", "8"}, {"SLURM_PROCID", "5"}, {"SLURM_STEP_ID", "0"}}), 5, 8);
    expect(read({{"SLURM_NTASKS", "8"}, {"SLURM_PROCID", "5"}, {"PMIX_RANK", "5"}}), 5, 8);
    expect(read({{"OMPI_COMM_WORLD_SIZE", "1"}, {"OMPI_COMM_WORLD_RANK", "0"}}), 0, 1);
}

TEST(LaunchEnvironment, ABatchScriptIsAlone) {
    expect(read({{"SLURM_NTASKS", "8"}, {"SLURM_PROCID", "0"}}), 0, 1);
}

TEST(LaunchEnvironment, TheStepCountsNotTheJob) {
    expect(read({{"SLURM_NTASKS", "8"},
                 {"SLURM_STEP_NUM_TASKS", "1"},
                 {"SLURM_PROCID", "0"},
                 {"SLURM_STEP_ID", "3"}}),
           0, 1);
}

TEST(LaunchEnvironment, NumbersAreChecked) {
    EXPECT_THROW(read({{"OMPI_COMM_WORLD_SIZE", "two"}, {"OMPI_COMM_WORLD_RANK", "0"}}), Error);
    EXPECT_THROW(read({{"OMPI_COMM_WORLD_SIZE", "2x"}, {"OMPI_COMM_WORLD_RANK", "0"}}), Error);
    EXPECT_THROW(read({{"OMPI_COMM_WORLD_SIZE", "2"}, {"OMPI_COMM_WORLD_RANK", "2"}}), Error);
    EXPECT_THROW(read({{"PMI_SIZE", "2"}, {"PMI_RANK", "-1"}}), Error);
}

}  // namespace
}  // namespace drover
