#include "run/output_folder.h"

#include <gtest/gtest.h>

#include <atomic>
#include <limits>
#include <thread>

#include "comm/threads/thread_world.h"
#include "core/text_file.h"
#include "support/golden.h"

namespace drover {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

constexpr LockTimes quick{.stale = milliseconds(100), .dying = milliseconds(0), .pause = milliseconds(5)};

class OutputFolders : public testing::Test {
  protected:
    static OutputFolderRequest request(const fs::path& folder, bool steal = false) {
        return {.folder = folder, .steal_lock = steal, .times = quick};
    }
    /// Creates the folder on three ranks; returns what each throws, and whether it shows that.
    std::vector<std::string> thrown_by_ranks(const OutputFolderRequest& request) const {
        std::vector<std::string> thrown(3);
        run_as_threads(3, {}, [&](World& world) {
            const ProcessGroup ranks(world);
            try {
                OutputFolder folder(ranks, quiet_, request);
                folder.take();
            } catch (const FailureOfRank& failure) {
                thrown[static_cast<std::size_t>(world.rank())] =
                    (failure.shown_here() ? "shown: " : "quiet: ") + std::string(failure.what());
            }
        });
        return thrown;
    }

    test::TemporaryFolder folder_;
    Messages quiet_{"error"};
    ProcessGroup alone_;
};

TEST_F(OutputFolders, AreMadeAndLockedByTheFirstRank) {
    const fs::path out = folder_ / "a/b/out";
    run_as_threads(3, {}, [&](World& world) {
        const ProcessGroup ranks(world);
        const OutputFolderRequest own = request(out);
        OutputFolder folder(ranks, quiet_, own);
        folder.take();
        EXPECT_TRUE(fs::exists(out / FolderLockAttempt::file_name));
        folder.check_still_ours();
    });
    // Nothing was written, so nothing is left.
    EXPECT_FALSE(fs::exists(out));

    fs::create_directories(out);
    const OutputFolderRequest again = request(out);
    {
        OutputFolder folder(alone_, quiet_, again);
        folder.take();
    }
    EXPECT_TRUE(fs::is_empty(out));
}

TEST_F(OutputFolders, OfOthersEndAllRanksWithOneMessage) {
    const OutputFolderRequest own = request(folder_ / "out");
    OutputFolder mine(alone_, quiet_, own);
    mine.take();
    const std::vector<std::string> thrown = thrown_by_ranks(request(folder_ / "out"));
    EXPECT_TRUE(thrown[0].starts_with("shown: Another run is writing to the folder")) << thrown[0];
    for (const std::size_t rank : {1, 2}) EXPECT_TRUE(thrown[rank].starts_with("quiet: ")) << thrown[rank];

    write_file_atomically(folder_ / "file", "");
    for (const char* name : {"file", "file/out"}) {
        const std::vector<std::string> file = thrown_by_ranks(request(folder_ / name));
        EXPECT_NE(file[0].find(name), std::string::npos) << file[0];
        EXPECT_TRUE(file[0].starts_with("shown: ") && file[2].starts_with("quiet: ")) << file[0] << file[2];
    }
}

TEST_F(OutputFolders, OfADeadHostAreWaitedForByAllRanks) {
    LockRecord record = LockRecord::own({});
    record.process.host = "elsewhere";
    create_file_exclusively(folder_ / FolderLockAttempt::file_name, record.text());
    EXPECT_EQ(thrown_by_ranks(request(folder_.path())), std::vector<std::string>(3));
}

/// A run that fails before it writes removes the folder it created, while another waits for it.
TEST_F(OutputFolders, ThatGoWhileTheyAreWaitedForAreMadeAgain) {
    const fs::path out = folder_ / "out";
    fs::create_directories(out);
    LockRecord record = LockRecord::own({});
    record.process.host = "elsewhere";
    create_file_exclusively(out / FolderLockAttempt::file_name, record.text());
    OutputFolderRequest patient = request(out);
    patient.times.stale = std::chrono::hours(1);
    OutputFolder folder(alone_, quiet_, patient);
    std::thread take([&] { folder.take(); });
    std::this_thread::sleep_for(milliseconds(50));  // some attempts
    fs::rename(out, folder_ / "gone");  // atomically: it may be created again before files in it are removed
    take.join();
    EXPECT_TRUE(fs::exists(out / FolderLockAttempt::file_name));
    folder.check_still_ours();
}

TEST_F(OutputFolders, ThatAreTakenEndTheRunOnAllRanks) {
    std::atomic<int> ended = 0;
    run_as_threads(3, {}, [&](World& world) {
        const ProcessGroup ranks(world);
        const OutputFolderRequest own = request(folder_.path()), stealing = request(folder_.path(), true);
        OutputFolder folder(ranks, quiet_, own);
        folder.take();
        std::optional<OutputFolder> thief;
        if (ranks.is_first()) thief.emplace(alone_, quiet_, stealing).take();
        ranks.meet();
        try {
            folder.check_still_ours();
        } catch (const AgreedError& error) {
            EXPECT_NE(error.cause().find("was taken from this run by"), std::string::npos) << error.what();
            ++ended;
        }
        ranks.meet();
    });
    EXPECT_EQ(ended, 3);
}

TEST_F(OutputFolders, WithTooLittleSpaceAreWarnedOf) {
    EXPECT_EQ(space_warning(folder_ / "not/there/yet", 1, "A checkpoint"), "");
    const std::string warning =
        space_warning(folder_ / "not/there/yet", std::numeric_limits<std::int64_t>::max(), "A checkpoint");
    EXPECT_TRUE(warning.starts_with("A checkpoint takes about")) << warning;
    EXPECT_FALSE(fs::exists(folder_ / "not"));
}

}  // namespace
}  // namespace drover
