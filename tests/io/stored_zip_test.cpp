#include "io/stored_zip.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "support/errors.h"

namespace drover {
namespace {

std::string number(std::uint64_t value, int bytes) {
    std::string text;
    for (int i = 0; i < bytes; ++i) text.push_back(static_cast<char>(value >> (8 * i)));
    return text;
}

/// An archive with one stored entry "name", in the form of large archives: its sizes and position are in the
/// extra field of 64-bit values, which follows another one, and the directory's position is in a 64-bit end
/// record.
std::string archive_with_wide_fields(const std::string& content, std::uint64_t said_size,
                                     std::uint32_t checksum = 0) {
    const std::string name = "name", narrow = "\xFF\xFF\xFF\xFF";
    const std::string timestamp = number(0x5455, 2) + number(5, 2) + "\1abcd";
    const std::string wide =
        number(1, 2) + number(24, 2) + number(said_size, 8) + number(said_size, 8) + number(0, 8);
    const std::string extra = timestamp + wide;
    std::string file = "PK\3\4" + std::string(14, '\0') + narrow + narrow + number(name.size(), 2) +
                       number(0, 2) + name + content;
    const std::uint64_t directory = file.size();
    file += "PK\1\2" + std::string(12, '\0') + number(checksum, 4) + narrow + narrow +
            number(name.size(), 2) + number(extra.size(), 2) + std::string(10, '\0') + narrow + name + extra;
    const std::uint64_t end64 = file.size();
    file += "PK\6\6" + std::string(28, '\0') + number(1, 8) + std::string(8, '\0') + number(directory, 8);
    file += "PK\6\7" + number(0, 4) + number(end64, 8) + number(1, 4);
    return file + "PK\5\6" + number(0, 4) + number(0xFFFF, 2) + number(0xFFFF, 2) + narrow + narrow +
           number(0, 2);
}

TEST(StoredZip, LargeArchivesHaveWideFields) {
    const std::string bytes = archive_with_wide_fields("content", 7);
    const StoredZip zip(bytes, "file.pt");
    ASSERT_EQ(zip.entries().size(), 1u);
    ASSERT_NE(zip.find("name"), nullptr);
    EXPECT_EQ(zip.find("name")->content, "content");
    EXPECT_EQ(zip.find("other"), nullptr);
    test::expect_error([&] { StoredZip(archive_with_wide_fields("content", 7000), "file.pt"); },
                       {"file.pt is damaged"});
}

TEST(StoredZip, ChecksumsAreComparedWhereThereAreSome) {
    const std::string content(std::size_t{9} << 20, 'x');  // several parts
    const auto verify = [&](std::uint32_t checksum) {
        const std::string bytes = archive_with_wide_fields(content, content.size(), checksum);
        int parts = 0;
        StoredZip(bytes, "file.pt").verify("name", [&] { ++parts; });
        return parts;
    };
    EXPECT_EQ(verify(zip_checksum(content)), 3);
    EXPECT_EQ(verify(0), 0);  // torch.save was told not to compute any
    test::expect_error([&] { verify(zip_checksum(content) ^ 1); },
                       {"file.pt is damaged: the checksum of its entry \"name\" is wrong"});
}

}  // namespace
}  // namespace drover
