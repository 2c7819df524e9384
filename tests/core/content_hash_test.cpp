#include "core/content_hash.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "core/error.h"
#include "support/errors.h"

namespace drover {
namespace {

TEST(ContentHash, OfNothingIsXxh3sOwn) {
    // The value that the xxHash specification gives for the empty input.
    EXPECT_EQ(ContentHash().hex(), "99aa06d3014798d86001c324468d497f");
}

TEST(ContentHash, PartsAreNotGluedTogether) {
    EXPECT_EQ(ContentHash().add_bytes("ab").hex(), ContentHash().add_bytes("a").add_bytes("b").hex());
    EXPECT_NE(ContentHash().add("ab").add("c").hex(), ContentHash().add("a").add("bc").hex());
}

TEST(ContentHash, OfAFileIsOfItsBytes) {
    const auto path = std::filesystem::path(testing::TempDir()) / "content_hash_test.bin";
    const std::string content(3'000'000, 'x');
    std::ofstream(path, std::ios::binary) << content;
    EXPECT_EQ(ContentHash().add_file(path).hex(), ContentHash().add_bytes(content).hex());
    test::expect_error([&] { ContentHash().add_file(path.string() + ".missing"); },
                       {path.string() + ".missing"});
}

}  // namespace
}  // namespace drover
