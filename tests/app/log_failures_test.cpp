#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/mount.h>

#include "app/checkpoint_runs.h"

namespace drover {
namespace {

namespace fs = std::filesystem;
using test::expect_equal_state;
using test::Outcome;

/// A run whose messages cannot be written, but whose results can.
class LogFailures : public test::CheckpointRuns {
  protected:
    /// Trains with the program's output redirected by `redirections`, which may name the file "said".
    Outcome train_saying(const std::string& output, const std::string& redirections,
                         const std::string& more = "") const {
        return test::run_drover(
            words(output, "--max_steps 4 --save_steps 2 --logging_steps 1 --do_eval " + more) + " " +
                redirections,
            folder_.path().string());
    }
    std::string said() const { return read_text_file(folder_ / "said"); }
    void expect_trained(const std::string& output) const {
        EXPECT_EQ(steps_in(output), (std::vector<std::int64_t>{2, 4}));
        for (const std::int64_t step : steps_in(output))
            EXPECT_EQ(find_damage(checkpoint(output, step)), std::nullopt) << output << " " << step;
        for (const char* name : {"model.safetensors", "eval_results.json", "README.md"})
            EXPECT_TRUE(fs::exists(folder_ / output / name)) << output << "/" << name;
    }
};

TEST_F(LogFailures, AFullDiskUnderTheLogDoesNotStopTheRun) {
    EXPECT_EQ(train_saying("out", ">/dev/full 2>said").exit_code, 0);
    expect_trained("out");
    EXPECT_NE(said().find("Standard output (/dev/full) cannot be written: No space left on device."),
              std::string::npos)
        << said();
    EXPECT_EQ(train_saying("errors", "2>/dev/full").exit_code, 0);
    expect_trained("errors");
    EXPECT_EQ(train_saying("both", ">/dev/full 2>/dev/full").exit_code, 0);
    expect_trained("both");
    expect_equal_state(checkpoint("both", 4), checkpoint("out", 4));
}

/// Files opened by the program would get the descriptors of standard output and standard error.
TEST_F(LogFailures, ClosedDescriptorsStayOutOfFiles) {
    EXPECT_EQ(train_saying("open", ">said 2>&1").exit_code, 0);
    expect_trained("open");
    for (const char* closed : {">&-", "2>&-", "<&- >&- 2>&-"}) {
        fs::remove_all(folder_ / "out");
        EXPECT_EQ(train_saying("out", closed).exit_code, 0) << closed;
        expect_trained("out");
        expect_equal_state(checkpoint("out", 4), checkpoint("open", 4));
        EXPECT_EQ(read_text_file(folder_ / "out/model.safetensors"),
                  read_text_file(folder_ / "open/model.safetensors"))
            << closed;
    }
}

/// Not even root can create a folder in /proc.
TEST_F(LogFailures, AProfileThatCannotBeWrittenDoesNotStopTheRun) {
    EXPECT_EQ(
        train_saying("out", ">said 2>&1", "--profile_step 0 --profile_logdir /proc/drover-trace").exit_code,
        0)
        << said();
    expect_trained("out");
    EXPECT_NE(said().find("The profile could not be written to /proc/drover-trace: "), std::string::npos)
        << said();
    EXPECT_NE(said().find("The run continues. "), std::string::npos) << said();
}

TEST_F(LogFailures, AFullDiskUnderTensorBoardDoesNotStopTheRun) {
    const fs::path disk = folder_ / "events";
    fs::create_directories(disk);
    if (mount("tmpfs", disk.c_str(), "tmpfs", 0, "size=32k") != 0)
        GTEST_SKIP() << "a small file system cannot be mounted here: " << std::strerror(errno);
    const Outcome outcome = train_saying(
        "out", ">said 2>&1", "--report_to tensorboard --logging_dir events --max_steps 200 --save_steps 200");
    umount(disk.c_str());
    EXPECT_EQ(outcome.exit_code, 0) << said();
    EXPECT_EQ(steps_in("out").back(), 200) << said();
    EXPECT_NE(said().find("cannot be written: No space left on device. Records are left out of it"),
              std::string::npos)
        << said();
}

TEST_F(LogFailures, AResultThatCannotBeWrittenIsAnError) {
    ASSERT_EQ(train("out", "--max_steps 1 --save_strategy no").exit_code, 0);
    const std::string model = (folder_ / "out").string();
    const std::string text = test::golden_path("run_clm/train.txt").string();
    for (const std::string& command :
         {fmt::format("generate --model '{}' --prompt king --max_new_tokens 2", model),
          fmt::format("generate --model '{}' --prompt king --max_new_tokens 2 --json", model),
          fmt::format("eval --model '{}' --data '{}' --block_size 32 --max_samples 2", model, text),
          std::string("run_clm --help")}) {
        const Outcome outcome = test::run_drover(command + " 2>said >/dev/full", folder_.path().string());
        EXPECT_EQ(outcome.exit_code, 1) << command;
        EXPECT_NE(
            said().find("drover: Standard output (/dev/full) cannot be written: No space left on device."),
            std::string::npos)
            << command << "\n"
            << said();
    }
}

}  // namespace
}  // namespace drover
