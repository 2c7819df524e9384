#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/mount.h>

#include <random>

#include "app/checkpoint_runs.h"
#include "support/background_run.h"

namespace drover {
namespace {

namespace fs = std::filesystem;
using test::BackgroundRun;
using test::Outcome;

class Interruption : public test::CheckpointRuns {
  protected:
    /// A run that does not end by itself during a test.
    std::unique_ptr<BackgroundRun> start(const std::string& more) const {
        return std::make_unique<BackgroundRun>(words("out", "--max_steps 1000000 " + more), folder_ / "log");
    }
    /// Starts such a run with its output piped to a reader that takes one line; `launcher` precedes the
    /// command.
    Outcome read_one_line(const std::string& launcher, const std::string& more) const {
        return test::run_shell(
            fmt::format("{{ {} {} {} 2>errors; echo $? >code; }} | head -1", DROVER_BINARY, launcher,
                        words("out", "--max_steps 1000000 --save_strategy no " + more)),
            folder_.path().string());
    }
    bool has_record() const {
        return fs::exists(folder_ / "log") &&
               read_text_file(folder_ / "log").find("{'loss'") != std::string::npos;
    }
};

TEST_F(Interruption, ASignalEndsTheRunWithACheckpointThatGoesOn) {
    for (const auto& [signal_number, name] : {std::pair{SIGTERM, "SIGTERM"}, std::pair{SIGINT, "SIGINT"},
                                              std::pair{SIGHUP, "SIGHUP"}, std::pair{SIGPIPE, "SIGPIPE"}}) {
        fs::remove_all(folder_ / "out");
        fs::remove(folder_ / "log");
        const auto run = start("--save_strategy no");
        ASSERT_TRUE(run->wait_until([&] { return has_record(); })) << run->output();
        run->send(signal_number);
        EXPECT_EQ(run->exit_code(), 128 + signal_number);
        EXPECT_NE(run->output().find(fmt::format("Stopped by {} after step", name)), std::string::npos)
            << run->output();
        ASSERT_EQ(steps_in("out").size(), 1u) << run->output();
        const std::int64_t step = steps_in("out")[0];
        EXPECT_EQ(find_damage(checkpoint("out", step)), std::nullopt);
        EXPECT_FALSE(fs::exists(folder_ / "out/model.safetensors"));

        const std::string to_the_end = fmt::format("--max_steps {} --save_steps 1000000", step + 3);
        const Outcome resumed = train("out", to_the_end);
        ASSERT_EQ(resumed.exit_code, 0) << resumed.output;
        EXPECT_NE(resumed.output.find(fmt::format("global step {}\n", step)), std::string::npos);
    }
}

TEST_F(Interruption, ASecondSignalStopsAtOnce) {
    // The first step takes a while: there are many micro-batches.
    const auto run = start("--gradient_accumulation_steps 10 --logging_steps 1 --save_steps 1000000");
    ASSERT_TRUE(run->wait_until([&] { return has_record(); })) << run->output();
    run->send(SIGSTOP);
    run->send(SIGINT);
    run->send(SIGTERM);  // both are pending when it continues
    run->send(SIGCONT);
    const int code = run->exit_code();
    EXPECT_TRUE(code == 128 + SIGINT || code == 128 + SIGTERM) << code;
    EXPECT_NE(run->output().find("A second signal"), std::string::npos) << run->output();
    EXPECT_TRUE(steps_in("out").empty());
    EXPECT_FALSE(fs::exists(folder_ / "out/drover.lock"));
}

/// A closing terminal may send SIGHUP more than once, and a scheduler SIGTERM as well.
TEST_F(Interruption, AHangUpIsNoSecondSignal) {
    const auto run = start("--gradient_accumulation_steps 10 --logging_steps 1 --save_steps 1000000");
    ASSERT_TRUE(run->wait_until([&] { return has_record(); })) << run->output();
    run->send(SIGSTOP);
    run->send(SIGHUP);
    run->send(SIGTERM);  // both are pending when it continues
    run->send(SIGCONT);
    run->send(SIGHUP);
    const int code = run->exit_code();
    EXPECT_TRUE(code == 128 + SIGHUP || code == 128 + SIGTERM) << code;
    EXPECT_EQ(steps_in("out").size(), 1u) << run->output();
}

TEST_F(Interruption, AHangUpThatIsIgnoredAtTheStartStaysIgnored) {
    const BackgroundRun run(words("out", "--max_steps 1000000 --save_strategy no"), folder_ / "log", "nohup");
    ASSERT_TRUE(run.wait_until([&] { return has_record(); })) << run.output();
    run.send(SIGHUP);
    run.send(SIGUSR1);
    ASSERT_TRUE(run.wait_until([&] { return steps_in("out").size() == 1; })) << run.output();
    run.send(SIGUSR1);  // it keeps training
    EXPECT_TRUE(run.wait_until([&] { return steps_in("out").size() == 2; })) << run.output();
}

/// As with `| head -1`; standard error goes elsewhere.
TEST_F(Interruption, AReaderThatLeavesEndsTheRunWithACheckpoint) {
    const Outcome outcome = read_one_line("", "--logging_steps 1");
    const std::string errors = read_text_file(folder_ / "errors");
    EXPECT_EQ(read_text_file(folder_ / "code"), "141\n") << errors;
    EXPECT_TRUE(outcome.output.starts_with("{'loss'")) << outcome.output;
    EXPECT_NE(errors.find("Stopped by SIGPIPE after step"), std::string::npos) << errors;
    ASSERT_EQ(steps_in("out").size(), 1u) << errors;
    EXPECT_EQ(find_damage(checkpoint("out", steps_in("out")[0])), std::nullopt);
}

/// mpirun writes to the pipe, and the launcher notices that it has no reader.
TEST_F(Interruption, AReaderThatLeavesEndsALaunchedJobWithACheckpoint) {
    read_one_line("launch --nproc_per_node 2", "--logging_steps 20");
    const std::string errors = read_text_file(folder_ / "errors");
    EXPECT_NE(errors.find("Stopped by SIGTERM after step"), std::string::npos) << errors;
    ASSERT_EQ(steps_in("out").size(), 1u) << errors;
    EXPECT_EQ(find_damage(checkpoint("out", steps_in("out")[0])), std::nullopt);
}

TEST_F(Interruption, Usr1SavesAndGoesOn) {
    const auto run = start("--save_strategy no");
    ASSERT_TRUE(run->wait_until([&] { return has_record(); })) << run->output();
    run->send(SIGUSR1);
    ASSERT_TRUE(run->wait_until([&] { return steps_in("out").size() == 1; })) << run->output();
    EXPECT_EQ(find_damage(checkpoint("out", steps_in("out")[0])), std::nullopt);
    run->send(SIGUSR1);
    EXPECT_TRUE(run->wait_until([&] { return steps_in("out").size() == 2; })) << run->output();
    run->send(SIGTERM);
    EXPECT_EQ(run->exit_code(), 128 + SIGTERM) << run->output();
}

/// oneDNN's matrix products use the stack pointer for other data, so none of their threads may run a handler.
TEST_F(Interruption, OneThreadTakesSignals) {
    const auto run = start("--save_strategy no");
    ASSERT_TRUE(run->wait_until([&] { return has_record(); })) << run->output();
    int threads = 0, taking = 0;
    for (const auto& thread : fs::directory_iterator(fmt::format("/proc/{}/task", run->process()))) {
        const std::string status = read_text_file(thread.path() / "status");
        const std::uint64_t blocked = std::stoull(status.substr(status.find("SigBlk:") + 7), nullptr, 16);
        ++threads;
        for (const int number : {SIGTERM, SIGINT, SIGUSR1, SIGHUP, SIGPIPE})
            if ((blocked >> (number - 1) & 1) == 0) {
                ++taking;
                break;
            }
    }
    EXPECT_LE(taking, 1);  // the one that waits for signals
    EXPECT_GE(threads, 2);
    run->send(SIGTERM);
    EXPECT_EQ(run->exit_code(), 128 + SIGTERM) << run->output();
}

/// DROVER_KILLS sets how often; each kill happens at some point during the saves of a run that saves after
/// every step.
TEST_F(Interruption, AKillAtAnyMomentLosesNothingThatWasComplete) {
    const char* wished = std::getenv("DROVER_KILLS");
    const int kills = wished == nullptr ? 12 : std::atoi(wished);
    std::mt19937 random(7);
    std::int64_t newest = 0;
    int in_a_save = 0;
    for (int i = 0; i < kills; ++i) {
        const auto run = start("--save_steps 1 --save_total_limit 2");
        ASSERT_TRUE(run->wait_until([&] {
            return !steps_in("out").empty() && steps_in("out").back() > newest;
        })) << run->output();
        std::this_thread::sleep_for(std::chrono::microseconds(random() % 80'000));
        run->send(SIGKILL);
        ASSERT_EQ(run->exit_code(), 128 + SIGKILL) << run->output();

        const std::vector<std::int64_t> steps = steps_in("out");
        ASSERT_FALSE(steps.empty());
        for (const std::int64_t step : steps)
            EXPECT_EQ(find_damage(checkpoint("out", step)), std::nullopt) << "checkpoint-" << step;
        EXPECT_GE(steps.back(), newest);
        newest = steps.back();
        for (const auto& entry : fs::directory_iterator(folder_ / "out"))
            in_a_save += entry.path().extension() == ".partial";
    }
    RecordProperty("kills_in_a_save", in_a_save);
    const Outcome last = train("out", fmt::format("--max_steps {} --save_steps 1", newest + 2));
    EXPECT_EQ(last.exit_code, 0) << last.output;
    EXPECT_NE(last.output.find(fmt::format("global step {}\n", newest)), std::string::npos) << last.output;
    EXPECT_EQ(steps_in("out").back(), newest + 2);
}

/// Files may be half a megabyte larger than the model needs; the optimizer's is larger than that.
TEST_F(Interruption, AFileThatCannotBeWrittenLeavesTheCheckpointBefore) {
    ASSERT_EQ(train("out", "--max_steps 2 --save_steps 2").exit_code, 0);
    const auto kilobytes = fs::file_size(folder_ / "out/model.safetensors") / 1024 + 512;
    const Outcome full = test::run_drover(
        words("out", "--max_steps 6 --save_steps 2 2>&1"),
        folder_.path().string() + fmt::format("' && trap '' XFSZ && ulimit -f {} && cd '", kilobytes * 2) +
            folder_.path().string());
    EXPECT_EQ(full.exit_code, 0) << full.output;
    EXPECT_NE(full.output.find("checkpoint-4 could not be written, and the run continues"), std::string::npos)
        << full.output;
    EXPECT_NE(full.output.find("optimizer.safetensors"), std::string::npos) << full.output;
    EXPECT_EQ(steps_in("out"), (std::vector<std::int64_t>{2}));
    EXPECT_EQ(find_damage(checkpoint("out", 2)), std::nullopt);
    EXPECT_FALSE(fs::exists(folder_ / "out/checkpoint-4.partial"));
}

TEST_F(Interruption, AFullDiskLeavesTheCheckpointBefore) {
    const fs::path disk = folder_ / "out";
    fs::create_directories(disk);
    if (mount("tmpfs", disk.c_str(), "tmpfs", 0, "size=6m") != 0)
        GTEST_SKIP() << "a small file system cannot be mounted here: " << std::strerror(errno);
    // One checkpoint has some 3.6 MB, so the second does not fit.
    const Outcome full = train("out", "--max_steps 6 --save_steps 2");
    const std::vector<std::int64_t> steps = steps_in("out");
    const auto damage = find_damage(checkpoint("out", 2));
    umount(disk.c_str());
    EXPECT_NE(full.output.find("checkpoint-4 could not be written, and the run continues"), std::string::npos)
        << full.output;
    EXPECT_NE(full.output.find("No space left on device"), std::string::npos) << full.output;
    EXPECT_EQ(steps, (std::vector<std::int64_t>{2}));
    EXPECT_EQ(damage, std::nullopt);
}

}  // namespace
}  // namespace drover
