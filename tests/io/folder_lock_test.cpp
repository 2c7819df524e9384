#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <barrier>
#include <fstream>

#include "core/error.h"
#include "core/json.h"
#include "core/json_text.h"
#include "core/text_file.h"
#include "io/folder_lock_attempt.h"
#include "support/errors.h"
#include "support/golden.h"

namespace drover {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

/// Everything is short, except a heartbeat that a test does not wait for.
constexpr LockTimes quick{.beat = milliseconds(20),
                          .stale = milliseconds(300),
                          .dying = milliseconds(0),
                          .unwritten = milliseconds(20)};

/// As in a run, but with quick heartbeats.
constexpr LockTimes watchful{.beat = milliseconds(20), .dying = milliseconds(0)};

class FolderLocks : public testing::Test {
  protected:
    fs::path file() const { return folder_ / FolderLockAttempt::file_name; }

    LockRequest request(LockTimes times = {.dying = milliseconds(0)}) const {
        return {.folder = folder_.path(), .times = times};
    }
    FolderLockAttempt attempt(const LockRequest& request) {
        return {request, [this](const std::string& line) { said_ += line + "\n"; }};
    }
    /// Continues until there is a lock or an Error.
    std::unique_ptr<FolderLock> get(const LockRequest& request) {
        FolderLockAttempt attempt = this->attempt(request);
        for (;;) {
            if (auto lock = attempt.advance()) return lock;
            usleep(1000);
        }
    }
    std::string refusal(const LockRequest& request) {
        return test::error_of([&] { get(request); });
    }

    /// A lock as a process on another host would leave it, `age` ago.
    LockRecord leave_lock_of_other_host(std::chrono::seconds age = {}, BatchJob job = {}) {
        LockRecord record = LockRecord::own(std::move(job));
        record.process.host = "elsewhere";
        record.process.pid = 4711;
        fs::remove(file());
        EXPECT_TRUE(create_file_exclusively(file(), record.text()));
        make_older(age);
        return record;
    }
    void make_older(std::chrono::seconds age) {
        fs::last_write_time(file(), fs::last_write_time(file()) - age);
    }
    /// A process that makes a lock and then waits to be killed, or ends.
    pid_t lock_in_process(bool ends) {
        const pid_t child = fork();
        if (child == 0) {
            create_file_exclusively(file(), LockRecord::own({}).text());
            if (!ends) pause();
            _exit(0);
        }
        while (!look_at_lock(file()) || !look_at_lock(file())->record) usleep(1000);
        return child;
    }
    std::vector<std::string> files() const {
        std::vector<std::string> names;
        for (const auto& entry : fs::directory_iterator(folder_.path()))
            names.push_back(entry.path().filename().string());
        return names;
    }

    test::TemporaryFolder folder_;
    std::string said_;
};

TEST_F(FolderLocks, NamesItsProcessAndGoesAtTheEnd) {
    {
        const auto lock = get(request());
        const Json json = read_json_file(file());
        EXPECT_EQ(json.at("pid"), getpid());
        std::array<char, 256> host{};
        gethostname(host.data(), host.size() - 1);
        EXPECT_EQ(json.at("host"), host.data());
        EXPECT_FALSE(json.at("boot_id").get<std::string>().empty());
        EXPECT_EQ(files(), std::vector<std::string>{FolderLockAttempt::file_name});
    }
    EXPECT_TRUE(files().empty());
    EXPECT_EQ(said_, "");
}

TEST_F(FolderLocks, BeatInPlace) {
    const auto lock = get(request(quick));
    const auto size = fs::file_size(file());
    const FileTime first = look_at_lock(file())->written;
    while (look_at_lock(file())->record->beat < 3) usleep(1000);
    EXPECT_GT(look_at_lock(file())->written, first);
    EXPECT_EQ(fs::file_size(file()), size);
    EXPECT_EQ(lock->taken_by(), std::nullopt);
}

TEST_F(FolderLocks, OfALivingProcessAreRefusedAndThatIsNamed) {
    const pid_t child = lock_in_process(false);
    const std::string said = refusal(request());
    EXPECT_NE(said.find("process " + std::to_string(child) + " on host "), std::string::npos) << said;
    EXPECT_NE(said.find("--steal_lock"), std::string::npos) << said;
    EXPECT_EQ(look_at_lock(file())->record->process.pid, child);
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
}

TEST_F(FolderLocks, OfAnEndedProcessAreTakenOverAtOnce) {
    for (const bool reaped : {false, true}) {
        const pid_t child = lock_in_process(true);
        if (reaped) waitpid(child, nullptr, 0);
        siginfo_t info{};
        if (!reaped) waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT);
        const auto lock = attempt(request()).advance();
        ASSERT_NE(lock, nullptr);
        EXPECT_EQ(look_at_lock(file())->record->process.pid, getpid());
        EXPECT_EQ(files().size(), 1u);
        EXPECT_NE(said_.find("that process has ended"), std::string::npos) << said_;
        if (!reaped) waitpid(child, nullptr, 0);
    }
}

TEST_F(FolderLocks, OfAnEarlierProcessWithTheSameNumberAreTakenOver) {
    LockRecord record = LockRecord::own({});
    record.process.started -= 1;
    create_file_exclusively(file(), record.text());
    EXPECT_NE(attempt(request()).advance(), nullptr);
}

TEST_F(FolderLocks, OfAnotherHostWithoutAHeartbeatAreWaitedFor) {
    leave_lock_of_other_host();
    FolderLockAttempt waiting = attempt(request());
    for (int looks = 0; looks < 5; ++looks) EXPECT_EQ(waiting.advance(), nullptr);
    EXPECT_NE(said_.find("process 4711 on host elsewhere"), std::string::npos) << said_;
    EXPECT_EQ(std::count(said_.begin(), said_.end(), '\n'), 1) << said_;
    make_older(std::chrono::seconds(595));
    // That changed the file, like a heartbeat.
    test::expect_error([&] { waiting.advance(); }, {"process 4711 on host elsewhere"});

    FolderLockAttempt other = attempt(request());
    EXPECT_EQ(other.advance(), nullptr);
    leave_lock_of_other_host(std::chrono::seconds(601));
    // Its time may come from a clock that is behind, so two heartbeats are waited for.
    EXPECT_EQ(other.advance(), nullptr);
    EXPECT_NE(get(request(watchful)), nullptr);
    EXPECT_NE(said_.find("no heartbeat for 10 minutes"), std::string::npos) << said_;
}

TEST_F(FolderLocks, OfAnotherHostThatBeatAreRefused) {
    LockRecord record = leave_lock_of_other_host();
    FolderLockAttempt waiting = attempt(request());
    EXPECT_EQ(waiting.advance(), nullptr);
    const FileTime before = look_at_lock(file())->written;
    while (look_at_lock(file())->written == before) {  // the file system's clock may be slow
        record.beat += 1;
        std::ofstream(file(), std::ios::in) << record.text();
    }
    test::expect_error([&] { waiting.advance(); }, {"process 4711 on host elsewhere"});
    EXPECT_EQ(look_at_lock(file())->record->token, record.token);
}

/// A fast clock elsewhere does not keep a lock alive: the lack of changes is noticed.
TEST_F(FolderLocks, FromTheFutureAreJudgedByWhatIsSeen) {
    leave_lock_of_other_host(std::chrono::hours(-24));
    const auto lock = get(request(quick));
    EXPECT_EQ(look_at_lock(file())->record->process.pid, getpid());
}

TEST_F(FolderLocks, OfAProcessThatStandsStillAreTakenOverInTheEnd) {
    LockTimes slow = quick;
    slow.beat = std::chrono::hours(1);
    const auto first = get(request(slow));
    make_older(std::chrono::minutes(11));
    const auto second = get(request(quick));
    EXPECT_NE(first->taken_by(), std::nullopt);
    EXPECT_EQ(second->taken_by(), std::nullopt);
}

TEST_F(FolderLocks, OfAJobThatWasStartedAgainAreTakenOverAtOnce) {
    leave_lock_of_other_host({}, {.id = "17", .restarts = 1});
    LockRequest again = request();
    for (const BatchJob& other : {BatchJob{}, BatchJob{.id = "18", .restarts = 2}, BatchJob{"17", 1}}) {
        again.job = other;
        EXPECT_EQ(attempt(again).advance(), nullptr) << other.id;
    }
    again.job = {.id = "17", .restarts = 2};
    EXPECT_NE(attempt(again).advance(), nullptr);
}

TEST_F(FolderLocks, ThatWereNeverWrittenAreTakenOver) {
    std::ofstream(file()).close();
    EXPECT_NE(get(request(quick)), nullptr);
}

TEST_F(FolderLocks, ThatNobodyCanReadAreWaitedForLikeThoseOfOthers) {
    std::ofstream(file()) << "not a lock";
    EXPECT_EQ(attempt(request()).advance(), nullptr);
    EXPECT_NE(said_.find("an unknown process"), std::string::npos) << said_;
    make_older(std::chrono::minutes(11));
    EXPECT_NE(get(request(watchful)), nullptr);
}

TEST_F(FolderLocks, ThatAreStolenAreNoticed) {
    LockRequest steal = request();
    steal.steal = true;
    const auto first = get(request());
    {
        const auto second = get(steal);
        EXPECT_NE(first->taken_by()->find("process "), std::string::npos);
        EXPECT_EQ(second->taken_by(), std::nullopt);
        first->release();
        EXPECT_EQ(second->taken_by(), std::nullopt);
        EXPECT_TRUE(fs::exists(file()));
    }
    EXPECT_FALSE(fs::exists(file()));
}

TEST_F(FolderLocks, ThatAreStolenAreNoticedWhenTheThiefHasEndedToo) {
    LockRequest steal = request();
    steal.steal = true;
    const auto first = get(request());
    get(steal).reset();
    EXPECT_FALSE(fs::exists(file()));
    EXPECT_NE(first->taken_by(), std::nullopt);
    EXPECT_NE(first->taken_by(), std::nullopt);
    EXPECT_TRUE(files().empty());
}

TEST_F(FolderLocks, ThatAreRemovedByHandAreMadeAgain) {
    const auto lock = get(request());
    fs::remove(file());
    EXPECT_EQ(lock->taken_by(), std::nullopt);
    EXPECT_TRUE(fs::exists(file()));
    fs::remove_all(folder_.path());
    EXPECT_EQ(lock->taken_by(), std::nullopt);
}

TEST_F(FolderLocks, AreTakenOverByOneOfMany) {
    for (int round = 0; round < 8; ++round) {
        if (round % 2 == 0)
            leave_lock_of_other_host(std::chrono::minutes(11));
        else
            waitpid(lock_in_process(true), nullptr, 0);
        constexpr int count = 12;
        std::atomic<int> winners = 0, refused = 0;
        std::barrier start(count), end(count);
        std::vector<std::thread> threads;
        for (int i = 0; i < count; ++i)
            threads.emplace_back([&] {
                FolderLockAttempt attempt(request(watchful), [](const std::string&) {});
                std::unique_ptr<FolderLock> lock;
                start.arrive_and_wait();
                try {
                    while (!lock) {
                        lock = attempt.advance();
                        usleep(100);
                    }
                    ++winners;
                } catch (const Error&) {
                    ++refused;
                }
                end.arrive_and_wait();
                EXPECT_EQ(lock ? lock->taken_by() : std::nullopt, std::nullopt);
            });
        for (std::thread& thread : threads) thread.join();
        EXPECT_EQ(winners, 1);
        EXPECT_EQ(refused, count - 1);
        EXPECT_FALSE(fs::exists(file()));
    }
}

TEST_F(FolderLocks, LeaveNothingOfATakeOverThatDied) {
    leave_lock_of_other_host(std::chrono::minutes(11));
    const fs::path mark = take_over_mark(file(), look_at_lock(file())->identity());
    std::ofstream(mark).close();
    FolderLockAttempt waiting = attempt(request(watchful));
    for (int looks = 0; looks < 50; ++looks) {
        EXPECT_EQ(waiting.advance(), nullptr);  // another process seems to be taking it over
        usleep(1000);
    }
    fs::last_write_time(mark, fs::last_write_time(mark) - std::chrono::minutes(2));
    const auto lock = get(request(watchful));
    // Its own mark stays until the other process, if alive, must have seen it.
    fs::last_write_time(mark, fs::last_write_time(mark) - std::chrono::minutes(11));
    remove_lock_leftovers(file(), watchful.leftover, watchful.mark());
    EXPECT_TRUE(fs::exists(mark));
    fs::last_write_time(mark, fs::last_write_time(mark) - std::chrono::minutes(11));
    lock->release();
    EXPECT_TRUE(files().empty());
}

/// Like a process whose machine slept, or that was stopped, while others came and went.
TEST_F(FolderLocks, OfAProcessThatStoodStillAreNotMadeAgain) {
    LockRequest still = request({.beat = std::chrono::hours(1), .stale = milliseconds(1), .dying = {}});
    const auto first = get(still);
    still.steal = true;
    get(still).reset();
    usleep(5000);        // until the mark of the take-over has expired
    get(still).reset();  // removes it
    EXPECT_TRUE(files().empty());
    EXPECT_NE(first->taken_by(), std::nullopt);
    EXPECT_TRUE(files().empty());
}

TEST_F(FolderLocks, ThatCannotBeReadNowAreLookedAtAgain) {
    const auto lock = get(request());
    const fs::path aside = folder_ / "aside";
    fs::rename(file(), aside);
    fs::create_symlink(file(), file());  // not even root can read it
    EXPECT_EQ(lock->taken_by(), std::nullopt);
    EXPECT_TRUE(fs::is_symlink(file()));
    fs::rename(aside, file());
    EXPECT_EQ(lock->taken_by(), std::nullopt);
    lock->release();
    EXPECT_TRUE(files().empty());
}

TEST_F(FolderLocks, BeatInTheirOwnFileWhateverHasItsName) {
    const auto lock = get(request(quick));
    const fs::path own = folder_ / "own";
    fs::create_hard_link(file(), own);
    write_file_atomically(file(), "something else");
    const std::int64_t before = look_at_lock(own)->record->beat;
    while (look_at_lock(own)->record->beat < before + 3) usleep(1000);
    EXPECT_EQ(read_text_file(file()), "something else");
}

/// Its heartbeat continues until it notices.
TEST_F(FolderLocks, ThatAreStolenAreNotWrittenToAnyMore) {
    const auto first = get(request(quick));
    LockRequest steal = request();
    steal.steal = true;
    const auto second = get(steal);
    const std::string text = read_text_file(file());
    const FileTime written = look_at_lock(file())->written;
    usleep(100'000);  // some heartbeats
    EXPECT_NE(first->taken_by(), std::nullopt);
    EXPECT_EQ(read_text_file(file()), text);
    EXPECT_EQ(look_at_lock(file())->written, written);
    EXPECT_EQ(second->taken_by(), std::nullopt);
}

TEST_F(FolderLocks, GoAtOnceWhenTheProgramDoes) {
    const auto lock = get(request(quick));
    lock->release_at_once();
    EXPECT_TRUE(files().empty());
    EXPECT_EQ(lock->taken_by(), std::nullopt);
    EXPECT_TRUE(files().empty());
    create_file_exclusively(file(), "another's");
    lock->release_at_once();
    EXPECT_EQ(files().size(), 1u);
}

TEST_F(FolderLocks, OfAFolderThatCannotBeWrittenToSaySo) {
    test::expect_error(
        [] { FolderLockAttempt({.folder = "/proc/self"}, [](const std::string&) {}).advance(); },
        {"/proc/self cannot be written to"});
}

}  // namespace
}  // namespace drover
