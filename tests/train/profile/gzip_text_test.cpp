#include "train/profile/gzip_text.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <cstdio>
#include <fstream>

#include "support/golden.h"

namespace drover {
namespace {

/// What gzip itself makes of a file.
std::string gunzipped(const std::filesystem::path& path) {
    std::string text;
    std::FILE* const pipe = popen(("gzip -dc '" + path.string() + "' 2>&1").c_str(), "r");
    for (int c; (c = std::fgetc(pipe)) != EOF;) text += static_cast<char>(c);
    EXPECT_EQ(pclose(pipe), 0) << "gzip finds the file damaged";
    return text;
}

TEST(GzipText, IsReadAsOneTextOfItsPieces) {
    std::string longer;  // than zlib is given at once
    for (int i = 0; longer.size() < 1'200'000; ++i) longer += std::to_string(i * 7919) + ',';
    const test::TemporaryFolder folder;
    const auto path = folder / "text.gz";
    GzipText text;
    std::string expected, file = text.begin();
    for (const std::string& piece : {std::string("first "), longer, std::string(), longer}) {
        file += text.add(compressed(piece));
        expected += piece;
    }
    file += text.end();
    std::ofstream(path, std::ios::binary) << file;
    EXPECT_LT(file.size(), expected.size() / 2);
    EXPECT_TRUE(gunzipped(path) == expected) << "the checksum and the length";

    // One member: a reader that knows only the first one has it all.
    z_stream stream{};
    constexpr int with_gzip_header = 16 + MAX_WBITS;
    ASSERT_EQ(inflateInit2(&stream, with_gzip_header), Z_OK);
    std::string read(expected.size() + 1, '\0');
    stream.next_in = reinterpret_cast<Bytef*>(file.data());
    stream.avail_in = static_cast<uInt>(file.size());
    stream.next_out = reinterpret_cast<Bytef*>(read.data());
    stream.avail_out = static_cast<uInt>(read.size());
    EXPECT_EQ(inflate(&stream, Z_FINISH), Z_STREAM_END);
    EXPECT_EQ(stream.avail_in, 0u);
    EXPECT_EQ(stream.total_out, expected.size());
    inflateEnd(&stream);
}

}  // namespace
}  // namespace drover
