#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>

#include "core/error.h"
#include "core/text_file.h"
#include "io/staged_folder.h"
#include "support/errors.h"
#include "support/golden.h"

namespace {

/// The most bytes that a call in this program reads or writes at once; 0: unlimited. The system itself does
/// this beyond 2 GiB.
std::atomic<std::size_t> most_bytes = 0;
std::atomic<int> short_calls = 0;

std::size_t allowed(std::size_t bytes) {
    const std::size_t most = most_bytes;
    if (most == 0 || bytes <= most) return bytes;
    ++short_calls;
    return most;
}

}  // namespace

// A program's own functions take precedence over the C library's, so all its code calls these.

extern "C" ssize_t pread(int descriptor, void* to, std::size_t bytes, off_t offset) {
    return syscall(SYS_pread64, descriptor, to, allowed(bytes), offset);
}

extern "C" ssize_t pwrite(int descriptor, const void* from, std::size_t bytes, off_t offset) {
    return syscall(SYS_pwrite64, descriptor, from, allowed(bytes), offset);
}

namespace drover {
namespace {

class ShortTransfers : public testing::Test {
  protected:
    ~ShortTransfers() override { most_bytes = 0; }

    void write_to(StagedFolder& staged, const std::string& text) const {
        staged.create();
        staged.create_file("file", text.size());
        staged.write("file", {.row_bytes = text.size()}, reinterpret_cast<const std::byte*>(text.data()));
    }

    test::TemporaryFolder folder_;
};

TEST_F(ShortTransfers, WritingGoesOnWhereTheSystemStopped) {
    const std::string text = "written in several pieces, each of which goes behind the last one";
    StagedFolder staged(folder_ / "checkpoint-1");
    most_bytes = 7;
    short_calls = 0;
    write_to(staged, text);
    EXPECT_GE(short_calls, 9);
    most_bytes = 0;
    staged.flush();
    staged.publish();
    EXPECT_EQ(read_text_file(folder_ / "checkpoint-1/file"), text);
}

TEST_F(ShortTransfers, ReadingBackGoesOnWhereTheSystemStopped) {
    StagedFolder staged(folder_ / "checkpoint-1");
    write_to(staged, "read back in several pieces, each of which comes behind the last one");
    most_bytes = 7;
    short_calls = 0;
    EXPECT_NO_THROW(staged.flush());
    EXPECT_GE(short_calls, 9);
}

/// The memory for the bytes starts as zeros, so an unnoticed end would look like zeros.
TEST_F(ShortTransfers, AFileThatLostItsEndDoesNotReadBack) {
    StagedFolder staged(folder_ / "checkpoint-1");
    write_to(staged, std::string(64, '\0'));
    std::filesystem::resize_file(folder_ / "checkpoint-1.partial/file", 32);
    test::expect_error([&] { staged.flush(); }, {"checkpoint-1.partial/file"});
}

}  // namespace
}  // namespace drover
