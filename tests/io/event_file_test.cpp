#include "io/event_file.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "core/json.h"
#include "core/json_text.h"
#include "core/text_file.h"
#include "support/errors.h"
#include "support/file_size_limit.h"
#include "support/golden.h"

namespace drover {
namespace {

std::string hexadecimal(std::string_view bytes) {
    std::string text;
    for (const char byte : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
    return text;
}

TEST(EventFile, ChecksumsAreCastagnolis) {
    EXPECT_EQ(crc32c(""), 0u);
    EXPECT_EQ(crc32c("123456789"), 0xE3069283u);
}

/// Recorded with the tensorboard package, by tools/oracle/event_records.py.
TEST(EventFile, RecordsAreTensorBoards) {
    const Json golden = read_json_file(test::golden_path("event_file.json"));
    const test::TemporaryFolder folder;
    EventFile file(folder / "runs/first", 1700000000.25);
    file.add_text(1700000000.5, 0, "args", "{}");
    const EventFile::Scalar loss{"train/loss", 8.319}, accuracy{"eval/accuracy", 0.0};
    file.add_scalars(1700000001.0, 7, {&loss, 1});
    file.add_scalars(1700000001.5, 300000, {&accuracy, 1});
    EXPECT_TRUE(file.path().filename().string().starts_with("events.out.tfevents.1700000000."));
    std::string expected;
    for (const char* record : {"version", "text", "scalar", "zero"})
        expected += golden.at(record).get<std::string>();
    EXPECT_EQ(hexadecimal(read_text_file(file.path())), expected);
}

TEST(EventFile, SaysWhenItCannotBeWritten) {
    const test::TemporaryFolder folder;
    write_file_atomically(folder / "taken", "a file");
    test::expect_error([&] { EventFile(folder / "taken/runs", 0); }, {(folder / "taken/runs").string()});
}

/// A disk that fills up and then has room again: no partial event remains in between.
TEST(EventFile, GoesOnBehindTheLastWholeEvent) {
    const test::TemporaryFolder folder;
    EventFile file(folder / "runs", 0);
    const EventFile::Scalar loss{"train/loss", 8.319};
    const auto beginning = std::filesystem::file_size(file.path());
    file.add_scalars(1, 1, {&loss, 1});
    const std::string before = read_text_file(file.path());
    {
        const test::FileSizeLimit full(before.size() + 10);
        test::expect_error(
            [&] {
                file.add_scalars(2, 2, {&loss, 1});
            },
            {file.path().string(), "cannot be written"});
        test::expect_error(
            [&] {
                file.add_scalars(3, 3, {&loss, 1});
            },
            {file.path().string(), "cannot be written"});
    }
    EXPECT_EQ(read_text_file(file.path()), before);
    file.add_scalars(4, 4, {&loss, 1});
    EXPECT_EQ(read_text_file(file.path()).size(), 2 * before.size() - beginning);
}

}  // namespace
}  // namespace drover
