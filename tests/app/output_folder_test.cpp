#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <unistd.h>

#include "app/checkpoint_runs.h"
#include "core/json_text.h"
#include "core/machine_identity.h"
#include "support/background_run.h"

namespace drover {
namespace {

namespace fs = std::filesystem;
using test::BackgroundRun;
using test::Outcome;

/// Who may write to --output_dir, and when this is checked.
class OutputFolderOfRuns : public test::CheckpointRuns {
  protected:
    fs::path lock() const { return folder_ / "out/drover.lock"; }

    /// A run that does not end by itself during a test.
    std::unique_ptr<BackgroundRun> start(const std::string& more = "") const {
        return std::make_unique<BackgroundRun>(words("out", "--max_steps 1000000 " + more), folder_ / "log");
    }
    static bool has_record(const BackgroundRun& run) {
        return run.output().find("{'loss'") != std::string::npos;
    }

    /// The lock of a process unknown to this machine, with a heartbeat some seconds ago.
    void leave_lock_of_other_host(int seconds, const std::string& job = "", int restarts = 0) const {
        const ProcessIdentity own = ProcessIdentity::own();
        const Json record = {{"host", "elsewhere"},
                             {"pid", 4711},
                             {"boot_id", own.boot},
                             {"pid_namespace", own.pid_namespace},
                             {"process_started", 1},
                             {"slurm_job", job},
                             {"slurm_restarts", restarts},
                             {"token", std::string(32, 'a')},
                             {"heartbeat", 1}};
        fs::create_directories(folder_ / "out");
        write_file_atomically(lock(), record.dump());
        fs::last_write_time(lock(), fs::last_write_time(lock()) - std::chrono::seconds(seconds));
    }

    /// The names in the output folder that are related to locks.
    std::vector<std::string> locks() const {
        std::vector<std::string> names;
        for (const auto& entry : fs::directory_iterator(folder_ / "out"))
            if (entry.path().filename().string().starts_with("drover.lock"))
                names.push_back(entry.path().filename().string());
        return names;
    }
};

/// Not even root can create a folder below a file or in /proc.
TEST_F(OutputFolderOfRuns, ThatCannotBeWrittenEndsTheRunBeforeItsFirstStep) {
    write_file_atomically(folder_ / "text.jsonl", "{}");
    for (const std::string& folder :
         {(folder_ / "text.jsonl/out").string(), (folder_ / "text.jsonl").string(),
          std::string("/proc/drover-output"), std::string("/proc/self")})
        for (const char* work : {"", "--do_train no --do_eval"}) {
            const Outcome outcome = train("out", fmt::format("--max_steps 2 --save_strategy no {} "
                                                             "--output_dir '{}'",
                                                             work, folder));
            EXPECT_EQ(outcome.exit_code, 1) << outcome.output;
            EXPECT_NE(outcome.output.find(folder), std::string::npos) << outcome.output;
            EXPECT_EQ(outcome.output.find("rows of"), std::string::npos) << outcome.output;  // no tokens yet
            EXPECT_EQ(outcome.output.find("loss"), std::string::npos) << outcome.output;
        }
}

TEST_F(OutputFolderOfRuns, ThatIsNoFolderForARunIsRefused) {
    for (const char* folder : {"''", "/", "//", "/.", "/tmp/.."}) {
        const Outcome outcome = train("out", fmt::format("--max_steps 2 --output_dir {}", folder));
        EXPECT_EQ(outcome.exit_code, 2) << folder << outcome.output;
        EXPECT_NE(outcome.output.find("--output_dir is "), std::string::npos) << outcome.output;
    }
}

TEST_F(OutputFolderOfRuns, IsNotTouchedByADryRunNorLeftByARefusal) {
    EXPECT_EQ(train("out", "--dry_run").exit_code, 0);
    EXPECT_FALSE(fs::exists(folder_ / "out"));
    EXPECT_EQ(train("out", "--tokenizer_name /nowhere").exit_code, 1);
    EXPECT_FALSE(fs::exists(folder_ / "out"));
}

TEST_F(OutputFolderOfRuns, BelongsToOneRunAtATime) {
    const auto first = start("--save_steps 1000000");
    ASSERT_TRUE(first->wait_until([&] { return has_record(*first); })) << first->output();
    for (const char* work : {"--max_steps 2", "--do_train no --do_eval"}) {
        const Outcome second = train("out", work);
        EXPECT_EQ(second.exit_code, 1) << second.output;
        EXPECT_NE(second.output.find(fmt::format("process {} on host ", first->process())), std::string::npos)
            << second.output;
    }
    EXPECT_EQ(train("out", "--dry_run").exit_code, 0);
    first->send(SIGTERM);
    EXPECT_EQ(first->exit_code(), 128 + SIGTERM) << first->output();
    EXPECT_EQ(steps_in("out").size(), 1u);
    EXPECT_TRUE(locks().empty());
}

TEST_F(OutputFolderOfRuns, IsUnlockedHoweverARunEnds) {
    ASSERT_EQ(train("out", "--max_steps 2").exit_code, 0);
    EXPECT_TRUE(locks().empty());
    EXPECT_EQ(train("out", "--max_steps 9 --optim adafactor").exit_code, 1);  // the saved state does not fit
    EXPECT_TRUE(locks().empty());
    // As soon as there is a lock, whether or not signals are being handled yet.
    for (const int number : {SIGTERM, SIGINT, SIGUSR1}) {
        if (number == SIGUSR1) fs::remove_all(folder_ / "out");
        const auto run = start();
        ASSERT_TRUE(run->wait_until([&] { return fs::exists(lock()); })) << run->output();
        run->send(number);
        if (number == SIGUSR1) run->send(SIGTERM);
        EXPECT_GT(run->exit_code(), 128) << run->output();
        EXPECT_FALSE(fs::exists(folder_ / "out") && !locks().empty()) << number;
    }
}

TEST_F(OutputFolderOfRuns, OfAKilledRunGoesToTheNextOne) {
    const auto killed = start("--save_steps 2");
    ASSERT_TRUE(killed->wait_until([&] { return !steps_in("out").empty(); })) << killed->output();
    killed->send(SIGKILL);
    killed->exit_code();
    EXPECT_TRUE(fs::exists(lock()));
    const Outcome next = train("out", fmt::format("--max_steps {}", steps_in("out").back() + 2));
    EXPECT_EQ(next.exit_code, 0) << next.output;
    EXPECT_NE(next.output.find("that process has ended"), std::string::npos) << next.output;
    EXPECT_TRUE(locks().empty());
}

/// The lock's own tests, with shorter times, show how a wait ends with a take-over.
TEST_F(OutputFolderOfRuns, OfAnotherHostIsWaitedFor) {
    leave_lock_of_other_host(601);
    BackgroundRun run(words("out", "--max_steps 2"), folder_ / "log");
    ASSERT_TRUE(run.wait_until([&] {
        return run.output().find("this run continues in") != std::string::npos;
    })) << run.output();
    EXPECT_NE(run.output().find("locked by process 4711 on host elsewhere"), std::string::npos)
        << run.output();
    fs::remove(lock());
    EXPECT_EQ(run.exit_code(), 0) << run.output();
    EXPECT_TRUE(fs::exists(folder_ / "out/model.safetensors"));
}

TEST_F(OutputFolderOfRuns, OfAJobThatSlurmStartsAgainIsTakenAtOnce) {
    leave_lock_of_other_host(0, "17", 1);
    setenv("SLURM_JOB_ID", "17", 1);
    setenv("SLURM_RESTART_COUNT", "2", 1);
    const Outcome outcome = train("out", "--max_steps 2");
    unsetenv("SLURM_JOB_ID");
    unsetenv("SLURM_RESTART_COUNT");
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
    EXPECT_NE(outcome.output.find("Slurm has started job 17 again"), std::string::npos) << outcome.output;
}

TEST_F(OutputFolderOfRuns, IsTakenWithStealLockAndTheOtherRunWritesNoMore) {
    const auto first = start("--save_strategy no");
    ASSERT_TRUE(first->wait_until([&] { return has_record(*first); })) << first->output();
    const Outcome thief = train("out", "--max_steps 3 --steal_lock");
    ASSERT_EQ(thief.exit_code, 0) << thief.output;
    const std::string model = read_text_file(folder_ / "out/model.safetensors");
    first->send(SIGTERM);  // saves
    EXPECT_EQ(first->exit_code(), 1) << first->output();
    EXPECT_NE(first->output().find("was taken from this run by"), std::string::npos) << first->output();
    EXPECT_EQ(steps_in("out"), std::vector<std::int64_t>{3});
    EXPECT_EQ(read_text_file(folder_ / "out/model.safetensors"), model);
    EXPECT_TRUE(locks().empty());
    // Reusing the run's settings does not steal again.
    EXPECT_FALSE(read_json_file(folder_ / "out/training_args.json").contains("steal_lock"));
}

/// A run without checkpoints notices at its end that its folder was taken.
TEST_F(OutputFolderOfRuns, ThatIsTakenGetsNoResultsOfTheOtherRun) {
    for (const char* work : {"--max_steps 50 --save_strategy no", "--do_train no --do_eval"}) {
        BackgroundRun victim(words("out", work), folder_ / "log");
        ASSERT_TRUE(victim.wait_until([&] {
            return victim.output().find("output_dir ") != std::string::npos;
        })) << victim.output();
        victim.send(SIGSTOP);
        leave_lock_of_other_host(0);
        victim.send(SIGCONT);
        EXPECT_EQ(victim.exit_code(), 1) << victim.output();
        EXPECT_NE(victim.output().find("was taken from this run by process 4711"), std::string::npos)
            << victim.output();
        EXPECT_EQ(locks(), std::vector<std::string>{"drover.lock"});
        EXPECT_EQ(std::distance(fs::directory_iterator(folder_ / "out"), fs::directory_iterator()), 1);
        fs::remove(lock());
    }
}

TEST_F(OutputFolderOfRuns, WithoutSpaceForACheckpointIsWarnedOf) {
    fs::create_directories(folder_ / "out");
    if (mount("tmpfs", (folder_ / "out").c_str(), "tmpfs", 0, "size=1m") != 0)
        GTEST_SKIP() << "a small file system cannot be mounted here: " << std::strerror(errno);
    const Outcome small = train("out", "--dry_run");
    umount((folder_ / "out").c_str());
    EXPECT_NE(small.output.find("A checkpoint takes about"), std::string::npos) << small.output;
    const Outcome large = train("out", "--dry_run");
    EXPECT_EQ(large.output.find("A checkpoint takes about"), std::string::npos) << large.output;
}

}  // namespace
}  // namespace drover
