#include "data/packing/token_cache.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <thread>

#include "core/content_hash.h"
#include "core/error.h"
#include "data/fakes.h"
#include "core/file_lock.h"
#include "support/errors.h"
#include "support/golden.h"

namespace drover {
namespace {

class Cache : public ::testing::Test {
  protected:
    /// Rows that count how often the first one is read.
    test::MadeDataset counted_rows(std::int64_t rows) {
        return test::MadeDataset(rows, [this](std::int64_t row) {
            if (row == 0) ++reads_;
            return std::to_string(row);
        });
    }
    TokenCache::Entry get(const RowDataset& dataset, bool overwrite = false) {
        return TokenCache(folder_.path()).get(dataset, test::byte_tokenizer(), options_, 2, overwrite);
    }
    std::filesystem::path only_token_file() {
        for (const auto& file : std::filesystem::directory_iterator(folder_.path()))
            if (file.path().extension() == ".tokens") return file.path();
        return {};
    }

    test::TemporaryFolder folder_;
    std::atomic<int> reads_ = 0;
    const PackingOptions options_{.block_size = 32};
};

TEST_F(Cache, TokenizesOnce) {
    const test::MadeDataset dataset = counted_rows(3000);
    EXPECT_TRUE(get(dataset).made);
    const TokenCache::Entry again = get(dataset);
    EXPECT_FALSE(again.made);
    EXPECT_EQ(reads_, 1);
    EXPECT_GT(again.file.rows().size(), 100);
    EXPECT_TRUE(get(dataset, true).made) << "overwrite_cache";
    EXPECT_EQ(reads_, 2);
}

TEST_F(Cache, TheKeyHoldsEverythingThatDecidesTheContent) {
    const test::MadeDataset dataset = counted_rows(10), other = counted_rows(11);
    const auto key = [](const RowDataset& rows, const PackingOptions& options,
                        std::int64_t vocabulary = 259) {
        return token_cache_key(rows, test::ByteTokenizer(vocabulary), options);
    };
    const std::string base = key(dataset, options_);
    EXPECT_EQ(base, key(dataset, options_));
    EXPECT_NE(base, key(other, options_));
    EXPECT_NE(base, key(dataset, options_, 300));
    EXPECT_NE(base, key(dataset, {.block_size = 33}));
    EXPECT_NE(base, key(dataset, {.block_size = 32, .workers = 2}));
    EXPECT_NE(base, key(dataset, {.block_size = 32, .max_rows = 2}));
    EXPECT_NE(base, key(dataset, {.packing = Packing::lossless, .block_size = 32}));
    EXPECT_EQ(key(dataset, {.packing = Packing::lossless, .block_size = 32}),
              key(dataset, {.packing = Packing::lossless, .block_size = 32, .workers = 4}))
        << "workers change the blocks of hf only";
}

TEST_F(Cache, ADamagedFileIsMadeAgain) {
    const test::MadeDataset dataset = counted_rows(3000);
    get(dataset);
    const std::filesystem::path path = only_token_file();
    std::filesystem::resize_file(path, std::filesystem::file_size(path) - 1);
    EXPECT_TRUE(get(dataset).made);
    EXPECT_FALSE(get(dataset).made);

    // A changed byte, in a file that was copied here and never verified.
    std::fstream(path, std::ios::binary | std::ios::in | std::ios::out).seekp(200).put('\x7f');
    EXPECT_TRUE(get(dataset).made);
    EXPECT_NO_THROW(get(dataset).file.rows().verify());
}

TEST_F(Cache, AnErrorLeavesNothingBehind) {
    const test::MadeDataset dataset(3000, [](std::int64_t row) {
        if (row == 2000) throw Error("Row 2000 is broken.", "Mend it.");
        return std::to_string(row);
    });
    test::expect_error([&] { get(dataset); }, {"Row 2000 is broken."});
    EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
    test::expect_error([&] { get(test::uneven_rows(0)); }, {"no rows of text"});
    test::expect_error([&] { get(test::uneven_rows(2)); }, {"The 2 rows of text", "not one block of "});
}

TEST_F(Cache, ThreadsThatStartTogetherMakeItOnce) {
    const test::MadeDataset dataset = counted_rows(20000);
    std::atomic<int> made = 0;
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) threads.emplace_back([&] { made += get(dataset).made ? 1 : 0; });
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(made, 1);
    EXPECT_EQ(reads_, 1);
}

TEST_F(Cache, WhoWaitsForAnotherToOverwriteUsesItsFile) {
    const test::MadeDataset plain = counted_rows(3000);
    get(plain);
    // The second one arrives while the first one is working, and the first one continues for a while after
    // that.
    std::atomic<bool> first_works = false, second_came = false;
    const test::MadeDataset first(3000, [&](std::int64_t row) {
        first_works = true;
        while (!second_came) std::this_thread::yield();
        return std::to_string(row);
    });
    bool second_made = true;
    std::thread other([&] {
        while (!first_works) std::this_thread::yield();
        std::thread signal([&] {
            std::this_thread::sleep_for(std::chrono::milliseconds(100));
            second_came = true;
        });
        second_made = get(plain, true).made;
        signal.join();
    });
    EXPECT_TRUE(get(first, true).made);
    other.join();
    EXPECT_FALSE(second_made);
}

TEST_F(Cache, ProcessesThatStartTogetherMakeItOnce) {
#if defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "the thread sanitizer does not allow threads after a fork";
#endif
    const test::MadeDataset dataset = counted_rows(20000);
    std::vector<pid_t> children;
    for (int i = 0; i < 3; ++i) {
        const pid_t child = fork();
        if (child == 0) {
            try {
                _exit(get(dataset).made ? 10 : 0);
            } catch (...) {
                _exit(1);
            }
        }
        children.push_back(child);
    }
    int made = 0;
    for (const pid_t child : children) {
        int status = 0;
        ASSERT_EQ(waitpid(child, &status, 0), child);
        ASSERT_TRUE(WIFEXITED(status));
        ASSERT_NE(WEXITSTATUS(status), 1);
        made += WEXITSTATUS(status) == 10 ? 1 : 0;
    }
    EXPECT_EQ(made, 1);
}

TEST_F(Cache, ALockFileThatWasLeftDoesNotStopAnybody) {
    std::ofstream(folder_ / "left.lock") << "";
    { const FileLock lock(folder_ / "left.lock"); }
    EXPECT_FALSE(std::filesystem::exists(folder_ / "left.lock"));
}

TEST_F(Cache, FileHashesAreRememberedUntilTheFileChanges) {
    const FileNotes notes(folder_ / "notes");
    const std::filesystem::path file = folder_ / "corpus.txt";
    const auto write = [&](const char* text, int seconds_ago) {
        std::ofstream(file) << text;
        std::filesystem::last_write_time(
            file, std::filesystem::file_time_type::clock::now() - std::chrono::seconds(seconds_ago));
        test::let_settle();
    };
    write("one", 100);
    EXPECT_EQ(notes.hash(file), ContentHash().add_file(file).hex());
    // The note is used: with a different text in it, that text is returned.
    std::filesystem::path note;
    for (const auto& entry : std::filesystem::directory_iterator(folder_ / "notes")) note = entry.path();
    ASSERT_FALSE(note.empty());
    std::ofstream(note) << std::string(32, 'a');
    EXPECT_EQ(notes.hash(file), std::string(32, 'a'));

    write("two", 50);
    EXPECT_EQ(notes.hash(file), ContentHash().add_file(file).hex());
    write("new", 0);
    notes.hash(file);
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_ / "notes"), {}), 2)
        << "a file that changed just now is not remembered";
    test::expect_error([&] { notes.hash(folder_ / "none"); }, {(folder_ / "none").string()});
}

}  // namespace
}  // namespace drover
