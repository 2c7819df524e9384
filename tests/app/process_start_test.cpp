#include <gtest/gtest.h>

#include "app/checkpoint_runs.h"
#include "support/background_run.h"

namespace drover {
namespace {

/// How OpenMP's threads wait, and how system limits affect a run.
class ProcessStart : public test::CheckpointRuns {
  protected:
    void SetUp() override {
        CheckpointRuns::SetUp();
        for (const char* name : {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"}) unsetenv(name);
    }
    /// The settings that libgomp prints when it is loaded; the program may be loaded twice.
    static std::string openmp_settings(const std::string& variables, const std::string& arguments) {
        return test::run_shell(variables + " OMP_DISPLAY_ENV=verbose " DROVER_BINARY " " + arguments +
                               " 2>&1 >/dev/null | grep -o 'GOMP_SPINCOUNT.*'")
            .output;
    }
    /// A short run with other shell commands before it.
    test::Outcome train_under(const std::string& limits, const std::string& more) const {
        return test::run_drover(
            words("out", "--max_steps 1 --save_strategy no " + more) + " 2>&1",
            folder_.path().string() + "' && " + limits + " && cd '" + folder_.path().string());
    }
};

TEST_F(ProcessStart, WaitingThreadsSpinShortly) {
    for (const char* command : {"run_clm --help", "generate --help", "eval --help", "bench --help"}) {
        const std::string settings = openmp_settings("", command);
        if (settings.empty()) GTEST_SKIP() << "this OpenMP library does not say how threads wait";
        EXPECT_NE(settings.find("GOMP_SPINCOUNT = '2000'"), std::string::npos) << command << "\n" << settings;
    }
    EXPECT_EQ(openmp_settings("", "launch --help").find("'2000'"), std::string::npos);
}

TEST_F(ProcessStart, TheUserSaysHowThreadsWait) {
    const std::string active = openmp_settings("OMP_WAIT_POLICY=active", "run_clm --help");
    EXPECT_EQ(active.find("'2000'"), std::string::npos) << active;
    EXPECT_EQ(std::count(active.begin(), active.end(), '\n'), 1) << active;  // loaded once
    const std::string count = openmp_settings("GOMP_SPINCOUNT=77", "run_clm --help");
    EXPECT_NE(count.find("'77'"), std::string::npos) << count;
}

/// The program is restarted, but in the same process.
TEST_F(ProcessStart, TheProcessStaysTheSame) {
    const test::BackgroundRun run(words("out", "--max_steps 1000000 --save_strategy no"), folder_ / "log");
    ASSERT_TRUE(run.wait_until([&] { return run.output().find("{'loss'") != std::string::npos; }))
        << run.output();
    const std::string place = fmt::format("/proc/{}/", run.process());
    EXPECT_NE(read_text_file(place + "environ").find("GOMP_SPINCOUNT=2000"), std::string::npos);
    EXPECT_EQ(read_text_file(place + "comm"), "drover\n");
    EXPECT_TRUE(read_text_file(place + "cmdline").starts_with(std::string(DROVER_BINARY) + '\0' + "run_clm"));
}

TEST_F(ProcessStart, ALimitOfAddressSpaceIsPlannedFor) {
    const std::string eight_gigabytes = "ulimit -v 8388608";
    if (test::run_shell(eight_gigabytes + " && " DROVER_BINARY " --version >/dev/null").exit_code != 0)
        GTEST_SKIP() << "the program does not start with so little address space: it has a sanitizer";
    const test::Outcome refused = train_under(eight_gigabytes, "--per_device_train_batch_size 200000");
    EXPECT_EQ(refused.exit_code, 1) << refused.output;
    EXPECT_NE(refused.output.find("drover: The run needs "), std::string::npos) << refused.output;
    EXPECT_NE(refused.output.find("`ulimit -v` leaves this process "), std::string::npos) << refused.output;
    EXPECT_NE(refused.output.find("One of these makes it fit"), std::string::npos) << refused.output;
    const test::Outcome fits = train_under(eight_gigabytes, "");
    EXPECT_EQ(fits.exit_code, 0) << fits.output;
}

/// The system refuses threads whose stacks do not fit, as it does beyond `ulimit -u` (which does not apply to
/// root).
TEST_F(ProcessStart, ThreadsThatCannotBeStartedAreNamed) {
    const std::string stacks = "ulimit -s 100000000000";
    if (test::run_shell(stacks).exit_code != 0) GTEST_SKIP() << "the limit of stacks cannot be raised here";
    const test::Outcome outcome = train_under(stacks, "--threads 2");
    EXPECT_EQ(outcome.exit_code, 1) << outcome.output;
    EXPECT_NE(outcome.output.find("drover: The system refused another thread while running drover run_clm"),
              std::string::npos)
        << outcome.output;
    EXPECT_NE(outcome.output.find("`ulimit -u`"), std::string::npos) << outcome.output;
    // OpenMP's own threads, if the program has no others.
    const test::Outcome openmp =
        test::run_shell(stacks + " && " DROVER_BINARY " generate --prompt_ids 1 --threads 4 --model '" +
                        test::golden_path("generate/llama").string() + "' 2>&1");
    EXPECT_EQ(openmp.exit_code, 1) << openmp.output;
    EXPECT_NE(openmp.output.find("drover: Of 4 threads, the system started 1"), std::string::npos)
        << openmp.output;
}

}  // namespace
}  // namespace drover
