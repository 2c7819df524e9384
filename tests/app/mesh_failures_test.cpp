#include <csignal>

#include "app/mesh_runs.h"
#include "support/background_run.h"

namespace drover {
namespace {

namespace fs = std::filesystem;
using test::count_of;

class MeshFailures : public test::MeshRuns {
  protected:
    /// One process with the first words and others with the second.
    test::Outcome run_unlike(const std::string& first, int others, const std::string& second) const {
        return shell(fmt::format("{} -n 1 {} {} : -n {} {} {}", mpirun(), DROVER_BINARY, words("out", first),
                                 others, DROVER_BINARY, words("out", second)));
    }
    void expect_shown_once(const test::Outcome& outcome, const std::string& text, int exit_code) const {
        EXPECT_EQ(outcome.exit_code, exit_code) << outcome.output;
        EXPECT_EQ(count_of(outcome.output, text), 1u) << outcome.output;
        EXPECT_EQ(count_of(outcome.output, "drover: "), 1u) << outcome.output;
    }
    /// The processes of this program that `parent` has started.
    static std::vector<pid_t> children(pid_t parent) {
        std::vector<pid_t> found;
        std::error_code gone;
        for (const auto& entry : fs::directory_iterator("/proc", gone)) {
            const std::string stat = file_text(entry.path() / "stat");
            const auto name_end = stat.rfind(')');
            if (name_end == std::string::npos || stat.find("(drover)") == std::string::npos) continue;
            if (std::stoi(stat.substr(name_end + 4)) == parent)
                found.push_back(std::stoi(entry.path().filename().string()));
        }
        std::sort(found.begin(), found.end());
        return found;
    }
    static std::string file_text(const fs::path& path) {
        std::string text;
        if (FILE* file = std::fopen(path.c_str(), "r")) {
            char buffer[4096];
            text.assign(buffer, std::fread(buffer, 1, sizeof buffer, file));
            std::fclose(file);
        }
        return text;
    }
};

TEST_F(MeshFailures, AWrongCommandLineIsShownOnce) {
    expect_shown_once(train_on(3, "out", "--learnign_rate 1"), "There is no flag --learnign_rate.", 2);
    expect_shown_once(run_unlike("", 1, "--learnign_rate 1"), "drover: Rank 1: There is no flag", 2);
}

/// Without its MPI module, or without MPI, the program runs on one process and reports what several need.
TEST_F(MeshFailures, WithoutMpiTheRemedyIsShown) {
    const std::string remedy = "Install Open MPI (Debian, Ubuntu: apt-get install openmpi-bin)";
    const std::string flags = "--max_steps 1 --save_strategy no";
    setenv("DROVER_MPI_MODULE", "/nonexistent/drover_mpi.so", 1);
    const test::Outcome no_module = train_on(3, "out", flags), alone = train("alone", flags);
    // The module on a machine whose loader does not find MPI.
    const fs::path copy = folder_ / "drover_mpi.so";
    const fs::path built = fs::path(DROVER_BINARY).parent_path() / "drover_mpi.so";
    const std::string rename = "sed 's/libmpi\\.so/libnil.so/'";
    ASSERT_EQ(shell(fmt::format("{} '{}' > '{}'", rename, built.string(), copy.string())).exit_code, 0);
    setenv("DROVER_MPI_MODULE", copy.c_str(), 1);
    const test::Outcome no_library = train_on(2, "out", flags);
    unsetenv("DROVER_MPI_MODULE");

    expect_shown_once(no_module, remedy, 1);
    EXPECT_NE(no_module.output.find("cannot be used: the module drover_mpi.so was not found (searched: "
                                    "/nonexistent/drover_mpi.so)."),
              std::string::npos)
        << no_module.output;
    expect_shown_once(no_library, remedy, 1);
    EXPECT_NE(no_library.output.find("drover_mpi.so cannot be loaded (libnil.so"), std::string::npos)
        << no_library.output;
    EXPECT_EQ(alone.exit_code, 0) << alone.output;
}

/// As srun starts the first of two processes without --mpi.
TEST_F(MeshFailures, SrunWithoutPmixIsRefused) {
    if (shell("ompi_info | grep -q 'MCA pmix: s[12]'").exit_code == 0)
        GTEST_SKIP() << "this Open MPI was built with PMI, so that it takes srun without PMIx";
    const std::vector<std::pair<const char*, const char*>> told = {
        {"SLURM_NTASKS", "2"}, {"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_PROCID", "0"}, {"SLURM_STEP_ID", "0"}};
    for (const auto& [name, value] : told) setenv(name, value, 1);
    const test::Outcome refused = train("out", "--max_steps 1 --save_strategy no");
    for (const auto& [name, value] : told) unsetenv(name);
    expect_shown_once(refused,
                      "srun started 2 processes without --mpi, so that this Open MPI cannot join them.", 1);
}

TEST_F(MeshFailures, RanksThatWereStartedUnlikeAreNamed) {
    expect_shown_once(run_unlike("", 2, "--learning_rate 0.5"),
                      "rank 0 differs from rank 1 in --learning_rate (0.5 there, 5e-05 on rank 0), rank 2 in",
                      1);
    const std::string other_config =
        fmt::format("--config_name '{}'", test::golden_path("run_clm/configs/mixtral.json").string());
    expect_shown_once(run_unlike("", 1, other_config), "rank 0 differs from rank 1 in the model's config", 1);
    const std::string drover = fmt::format("{} {}", DROVER_BINARY, words("out", ""));
    expect_shown_once(shell(fmt::format("{0} -n 1 {1} : -n 1 env XLA_USE_SPMD=1 {1}", mpirun(), drover)),
                      "rank 1 in the batch (of all replicas together there, of each replica on rank 0)", 1);
}

/// The same names on two machines, but not the same files.
TEST_F(MeshFailures, StreamedFilesThatDifferAreNamed) {
    for (const char* machine : {"a", "b"}) {
        fs::create_directories(folder_ / machine);
        write_file_atomically(
            folder_ / machine / "text.txt",
            std::string("Some text of machine ") + machine + (machine[0] == 'a' ? ".\n" : ", and more.\n"));
    }
    const std::string drover =
        fmt::format("{} {}", DROVER_BINARY, words("out", "--train_file text.txt --streaming --max_steps 2"));
    expect_shown_once(shell(fmt::format("{0} -n 1 --wdir a {1} : -n 1 --wdir b {1}", mpirun(), drover)),
                      "rank 0 differs from rank 1 in the files of the training data", 1);
}

TEST_F(MeshFailures, ADamagedModelIsShownOnce) {
    ASSERT_EQ(train("model", "--max_steps 1 --save_strategy no").exit_code, 0);
    const fs::path weights = folder_ / "model" / "model.safetensors";
    fs::resize_file(weights, fs::file_size(weights) / 2);
    expect_shown_once(train_on(3, "out", "--log_level error --model_name_or_path model"), "model.safetensors",
                      1);
}

TEST_F(MeshFailures, ShapesThatCannotBeSplitAreRefused) {
    struct Case {
        int processes;
        std::string flags, said;
        int exit_code;
    };
    const std::vector<Case> cases{
        {3, "--tensor_parallel_size 3", "4 attention heads cannot be spread over 3", 1},
        {2, "--context_parallel_size 2", "context parallelism is not available yet", 2},
        {2, "--pipeline_parallel_size 2 --virtual_pipeline_size 2", "4 stages needs as many layers", 1},
        {2, "--tensor_parallel_size 2 --sequence_parallel --block_size 31",
         "Rows of 31 tokens cannot be split", 1},
    };
    for (const Case& wrong : cases)
        expect_shown_once(train_on(wrong.processes, "out", "--log_level error " + wrong.flags), wrong.said,
                          wrong.exit_code);
}

TEST_F(MeshFailures, ALossThatIsNoNumberIsShownOnce) {
    const test::Outcome outcome =
        train_on(2, "out", "--learning_rate 1e30 --max_steps 4 --save_strategy no --log_level error");
    expect_shown_once(outcome, "is not a finite number.", 1);
}

TEST_F(MeshFailures, AKilledProcessEndsTheRun) {
    const fs::path said = folder_ / "said";
    const std::string flags = "--max_steps 1000000 --save_strategy no --fsdp full_shard --logging_steps 1";
    test::BackgroundRun run(words("out", flags), said, fmt::format("{} -n 3", mpirun()));
    ASSERT_TRUE(run.wait_until([&] { return run.output().find("{'loss'") != std::string::npos; }))
        << run.output();
    const std::vector<pid_t> processes = children(run.process());
    ASSERT_EQ(processes.size(), 3u);
    kill(processes[1], SIGKILL);
    ASSERT_TRUE(run.wait_until([&] { return children(run.process()).empty(); })) << run.output();
    EXPECT_EQ(run.exit_code(), 128 + SIGKILL) << run.output();
}

/// A signal to one process: all finish the step, save it together, and end.
TEST_F(MeshFailures, ASignalToOneProcessSavesAndEndsAll) {
    const fs::path said = folder_ / "said";
    const std::string flags =
        "--max_steps 1000000 --save_strategy steps --spmd_2d_sharding 2 --logging_steps 1";
    test::BackgroundRun run(words("out", flags), said, fmt::format("{} -n 2", mpirun()));
    ASSERT_TRUE(run.wait_until([&] { return run.output().find("{'loss'") != std::string::npos; }))
        << run.output();
    const std::vector<pid_t> processes = children(run.process());
    ASSERT_EQ(processes.size(), 2u);
    kill(processes[1], SIGTERM);
    EXPECT_EQ(run.exit_code(), 128 + SIGTERM) << run.output();
    EXPECT_EQ(count_of(run.output(), "drover: Stopped by SIGTERM after step"), 1u) << run.output();
    const std::vector<std::int64_t> saved = steps_in("out");
    ASSERT_EQ(saved.size(), 1u) << run.output();
    EXPECT_EQ(find_damage(checkpoint("out", saved[0])), std::nullopt);
}

class MeshCheckpoints : public test::MeshRuns {
  protected:
    static void copy_folder(const fs::path& from, const fs::path& to) {
        fs::create_directories(to.parent_path());
        fs::copy(from, to, fs::copy_options::recursive);
    }
};

TEST_F(MeshCheckpoints, AnyMeshGoesOnFromAnyOther) {
    const std::string run =
        "--per_device_train_batch_size 4 --max_train_samples 23 --max_steps 6 --logging_steps 1 ";
    ASSERT_EQ(train("alone", run + "--save_strategy no").exit_code, 0);
    const test::Outcome saved =
        train_on(4, "two_dimensions", run + "--save_steps 1 --save_total_limit 3 --spmd_2d_sharding 2");
    ASSERT_EQ(saved.exit_code, 0) << saved.output;
    EXPECT_EQ(steps_in("two_dimensions"), (std::vector<std::int64_t>{4, 5, 6}));
    expect_same_records("two_dimensions", "alone");

    const auto resume = [&](int processes, const std::string& output, std::int64_t from,
                            const std::string& flags) {
        copy_folder(checkpoint("two_dimensions", from),
                    folder_ / output / fmt::format("checkpoint-{}", from));
        const test::Outcome outcome = train_on(processes, output, run + "--save_strategy no " + flags);
        ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
        EXPECT_EQ(count_of(outcome.output, fmt::format("Continuing training from global step {}", from)), 1u);
        EXPECT_EQ(count_of(outcome.output, "The resumed run will differ"), 0u) << outcome.output;
        expect_same_records(output, "alone");
    };
    resume(1, "on_one", 4, "");
    resume(2, "on_two", 5, "--spmd_fsdp_sharding");
    resume(8, "on_eight", 5, "--spmd_2d_sharding 2");
    resume(2, "on_a_pipeline", 4, "--pipeline_parallel_size 2");
    // The same from one process to several, and from a pipeline to one.
    const auto take_from = [&](const std::string& output) {
        fs::remove_all(checkpoint("two_dimensions", 4));
        copy_folder(checkpoint(output, 4), checkpoint("two_dimensions", 4));
    };
    ASSERT_EQ(train("one_saved", run + "--save_steps 4").exit_code, 0);
    take_from("one_saved");
    resume(2, "from_one", 4, "--tensor_parallel_size 2");
    ASSERT_EQ(train_on(2, "pipeline_saved", run + "--save_steps 4 --pipeline_parallel_size 2").exit_code, 0);
    take_from("pipeline_saved");
    resume(1, "from_a_pipeline", 4, "");
}

}  // namespace
}  // namespace drover
