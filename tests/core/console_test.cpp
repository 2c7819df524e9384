#include "core/console.h"

#include <gtest/gtest.h>

#include "core/text_file.h"
#include "support/golden.h"

namespace drover {
namespace {

TEST(Console, ALogThatCannotBeWrittenIsSaidOnce) {
    std::FILE* full = std::fopen("/dev/full", "w");
    ASSERT_NE(full, nullptr);
    testing::internal::CaptureStderr();
    write_log(full, "one\n");
    print_log(full, "{}\n", 2);
    EXPECT_EQ(testing::internal::GetCapturedStderr(),
              "drover: The log /dev/full cannot be written: No space left on device. Its output is lost.\n");
    std::fclose(full);
}

TEST(Console, EveryLineIsInTheFileAtOnce) {
    const test::TemporaryFolder folder;
    std::FILE* file = std::fopen((folder / "log").c_str(), "w");
    print_log(file, "{} of {}\n", 1, 2);
    EXPECT_EQ(read_text_file(folder / "log"), "1 of 2\n");
    std::fclose(file);
}

}  // namespace
}  // namespace drover
