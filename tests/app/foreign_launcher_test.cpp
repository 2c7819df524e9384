// Launchers whose processes cannot find each other: nothing is trained twice.

#include <fstream>

#include "app/mesh_runs.h"

namespace drover {
namespace {

namespace fs = std::filesystem;
using test::count_of;

class ForeignLauncher : public test::MeshRuns {
  protected:
    /// Starts a command twice, each with the variables of one of two processes; RANK is replaced by its
    /// number. Returns the output and the two exit codes.
    test::Outcome start_two(const std::string& variables, const std::string& command) const {
        std::ofstream(folder_ / "start_two.sh")
            << "for RANK in 0 1; do\n  (env -u OMPI_COMM_WORLD_SIZE " << variables << " " << command
            << "; echo \"process $RANK: $?\") &\ndone\nwait\n";
        return shell("sh start_two.sh");
    }
    /// Both refuse and leave no files.
    void expect_refused(const test::Outcome& outcome, const std::string& command_that_works,
                        int exit_code = 1) {
        for (const int process : {0, 1})
            EXPECT_TRUE(contains(outcome.output, fmt::format("process {}: {}\n", process, exit_code)))
                << outcome.output;
        EXPECT_TRUE(contains(outcome.output, command_that_works)) << outcome.output;
        EXPECT_FALSE(fs::exists(folder_ / "out"));
    }
    static bool contains(const std::string& text, const std::string& part) {
        return count_of(text, part) > 0;
    }
    std::string run_clm() const {
        return fmt::format("{} {}", DROVER_BINARY, words("out", "--max_steps 1 --save_strategy no"));
    }
};

constexpr const char* torchrun =
    "RANK=$RANK LOCAL_RANK=$RANK WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 GROUP_RANK=0 MASTER_ADDR=127.0.0.1";

TEST_F(ForeignLauncher, TorchrunTrainsNoCopies) {
    expect_refused(start_two(torchrun, run_clm()), "drover launch --nproc_per_node 2 run_clm …");
}

TEST_F(ForeignLauncher, TorchrunInAStepOfOneProcessTrainsNoCopies) {
    const std::string step = "SLURM_STEP_NUM_TASKS=1 SLURM_PROCID=0 SLURM_STEP_ID=0 ";
    expect_refused(start_two(step + torchrun, run_clm()), "drover launch --nproc_per_node 2 run_clm …");
}

/// The settings suit the intended number of processes, not the single one that each would train in.
TEST_F(ForeignLauncher, TheLauncherIsNamedBeforeTheArguments) {
    std::ofstream(folder_ / "ds.json") << R"({"train_batch_size": 2})";
    const test::Outcome outcome = start_two(torchrun, run_clm() + " --deepspeed ds.json");
    expect_refused(outcome, "drover launch --nproc_per_node 2 run_clm …");
    EXPECT_FALSE(contains(outcome.output, "train_batch_size")) << outcome.output;
    const test::Outcome help = start_two(torchrun, fmt::format("{} run_clm --help", DROVER_BINARY));
    expect_refused(help, "--learning_rate", 0);
}

TEST_F(ForeignLauncher, AnMpirunOfAnotherMpiTrainsNoCopies) {
    expect_refused(start_two("PMI_RANK=$RANK PMI_SIZE=2", run_clm()), "drover launch --nproc_per_node 2");
}

TEST_F(ForeignLauncher, AProgramOfTheLibraryTrainsNoCopies) {
    fs::create_directories(folder_ / "model");
    for (const fs::path& from : {test::golden_path("run_clm/saved"),
                                 fs::path(DROVER_SOURCE_DIR) / "examples/tokenizers/shakespeare-4k"})
        fs::copy(from, folder_ / "model", fs::copy_options::recursive | fs::copy_options::overwrite_existing);
    const fs::path quotes = fs::path(DROVER_SOURCE_DIR) / "examples/data/quotes.jsonl";
    expect_refused(start_two(torchrun, fmt::format("{} model '{}' out 1", FINETUNE_QUOTES, quotes.string())),
                   "drover launch --nproc_per_node 2 --exec ./finetune_quotes …");
}

TEST_F(ForeignLauncher, OneProcessTrains) {
    const test::Outcome outcome =
        shell("env RANK=0 LOCAL_RANK=0 WORLD_SIZE=1 SLURM_NTASKS=2 SLURM_PROCID=0 " + run_clm());
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
    EXPECT_TRUE(fs::exists(folder_ / "out" / "model.safetensors"));
}

}  // namespace
}  // namespace drover
