#include "run/launch_environment.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "core/error.h"
#include "support/errors.h"

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

TEST(LaunchEnvironment, TheShellsOfSlurmAreAlone) {
    // salloc on the login node; a batch step and an interactive one, whose ids newer versions set.
    expect(read({{"SLURM_NTASKS", "8"}}), 0, 1);
    for (const char* step : {"4294967291", "4294967290"})
        expect(read({{"SLURM_NTASKS", "8"}, {"SLURM_PROCID", "0"}, {"SLURM_STEP_ID", step}}), 0, 1);
    // Only srun has a second process.
    expect(read({{"SLURM_NTASKS", "8"}, {"SLURM_PROCID", "1"}}), 1, 8);
}

void expect_not_refused(const std::map<std::string, std::string>& variables) {
    const LaunchEnvironment found = read(variables);
    EXPECT_FALSE(found.has_others()) << variables.begin()->first;
    EXPECT_NO_THROW(refuse_foreign_launcher(found, "run_clm …")) << variables.begin()->first;
}

std::string refusal(const std::map<std::string, std::string>& variables) {
    const LaunchEnvironment found = read(variables);
    EXPECT_FALSE(found.has_others());
    return test::error_of([&] { refuse_foreign_launcher(found, "run_clm …"); });
}

TEST(LaunchEnvironment, ForeignLaunchersAreRefusedWithTheCommandThatWorks) {
    const std::string two =
        "WORLD_SIZE is 2: another launcher has started 2 processes, which would each train alone. Use ";
    const std::string otherwise = "; to train in one process, unset WORLD_SIZE and RANK.";
    std::map<std::string, std::string> torchrun{{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "1"}};
    const std::string one_machine =
        two + "drover launch --nproc_per_node 2 run_clm … in place of that launcher" + otherwise;
    EXPECT_EQ(refusal(torchrun), one_machine);
    EXPECT_EQ(read(torchrun).rank, 1);
    torchrun["LOCAL_WORLD_SIZE"] = "2";
    EXPECT_EQ(refusal(torchrun), one_machine);
    torchrun.insert({{"GROUP_RANK", "1"}, {"MASTER_ADDR", "10.0.0.1"}});
    torchrun["LOCAL_WORLD_SIZE"] = "1";
    EXPECT_EQ(refusal(torchrun), two +
                                     "drover launch --nnodes 2 --node_rank 1 --master_addr 10.0.0.1 "
                                     "--nproc_per_node 1 run_clm … in place of that launcher" +
                                     otherwise);
    EXPECT_EQ(refusal({{"RANK", "0"}, {"WORLD_SIZE", "2"}}),
              two + "drover launch run_clm … on every machine" + otherwise);
}

TEST(LaunchEnvironment, AForeignLauncherInsideAnotherOneIsSeen) {
    const std::map<std::string, std::string> torchrun{
        {"RANK", "1"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "1"}};
    const std::string refused = refusal(torchrun);
    for (std::map<std::string, std::string> outer : std::vector<std::map<std::string, std::string>>{
             {{"OMPI_COMM_WORLD_SIZE", "1"}, {"OMPI_COMM_WORLD_RANK", "0"}},
             {{"PMI_SIZE", "1"}, {"PMI_RANK", "0"}},
             {{"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_PROCID", "0"}, {"SLURM_STEP_ID", "0"}}}) {
        const std::string name = outer.begin()->first;
        outer.insert(torchrun.begin(), torchrun.end());
        EXPECT_EQ(refusal(outer), refused) << name;
        EXPECT_EQ(read(outer).rank, 1) << name;
    }
    // srun -N2 --ntasks-per-node=1 torchrun --nproc_per_node 8
    EXPECT_EQ(
        refusal({{"SLURM_NTASKS", "2"},
                 {"SLURM_PROCID", "1"},
                 {"SLURM_STEP_ID", "0"},
                 {"RANK", "9"},
                 {"LOCAL_RANK", "1"},
                 {"WORLD_SIZE", "16"},
                 {"LOCAL_WORLD_SIZE", "8"},
                 {"GROUP_RANK", "1"},
                 {"MASTER_ADDR", "10.0.0.1"}}),
        "WORLD_SIZE is 16: another launcher has started 16 processes, which would each train alone. Use "
        "drover launch --nnodes 2 --node_rank 1 --master_addr 10.0.0.1 --nproc_per_node 8 run_clm … in "
        "place of that launcher; to train in the 2 processes of mpirun or srun, unset WORLD_SIZE and "
        "RANK.");
}

TEST(LaunchEnvironment, NobodyIsRefusedWhoIsAloneOrWasStartedByMpirun) {
    expect_not_refused({{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"LOCAL_RANK", "0"}});
    expect_not_refused({{"WORLD_SIZE", "2"}});
    expect_not_refused({{"RANK", ""}, {"WORLD_SIZE", ""}});
    expect_not_refused({{"SLURM_NTASKS", "2"}, {"SLURM_PROCID", "0"}});
    // A platform's machine numbers, with mpirun inside one machine.
    EXPECT_FALSE(read({{"OMPI_COMM_WORLD_SIZE", "2"},
                       {"OMPI_COMM_WORLD_RANK", "0"},
                       {"RANK", "1"},
                       {"WORLD_SIZE", "2"}})
                     .foreign);
    const LaunchEnvironment launched = read({{"OMPI_COMM_WORLD_SIZE", "2"},
                                             {"OMPI_COMM_WORLD_RANK", "1"},
                                             {"RANK", "1"},
                                             {"WORLD_SIZE", "2"},
                                             {"LOCAL_RANK", "1"}});
    expect(launched, 1, 2);
    EXPECT_FALSE(launched.foreign);
}

TEST(LaunchEnvironment, TheStepCountsNotTheJob) {
    expect(read({{"SLURM_NTASKS", "8"},
                 {"SLURM_STEP_NUM_TASKS", "1"},
                 {"SLURM_PROCID", "0"},
                 {"SLURM_STEP_ID", "3"}}),
           0, 1);
}

TEST(LaunchEnvironment, NumbersAreChecked) {
    test::expect_error(
        [&] {
            read({{"OMPI_COMM_WORLD_SIZE", "two"}, {"OMPI_COMM_WORLD_RANK", "0"}});
        },
        {"OMPI_COMM_WORLD_SIZE is \"two\""});
    test::expect_error(
        [&] {
            read({{"OMPI_COMM_WORLD_SIZE", "2x"}, {"OMPI_COMM_WORLD_RANK", "0"}});
        },
        {"OMPI_COMM_WORLD_SIZE is \"2x\""});
    test::expect_error(
        [&] {
            read({{"OMPI_COMM_WORLD_SIZE", "2"}, {"OMPI_COMM_WORLD_RANK", "2"}});
        },
        {"OMPI_COMM_WORLD_RANK is 2, but OMPI_COMM_WORLD_SIZE is 2"});
    test::expect_error([&] { read({{"PMI_SIZE", "2"}, {"PMI_RANK", "-1"}}); }, {"PMI_RANK"});
}

}  // namespace
}  // namespace drover
