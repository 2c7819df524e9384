#include "core/sha1.h"

#include <gtest/gtest.h>

#include <string>

#include "core/byte_text.h"

namespace drover {
namespace {

// The vectors of FIPS 180 (NIST's examples).
TEST(Sha1, GivesThePublishedDigests) {
    EXPECT_EQ(hex_text(Sha1().digest()), "da39a3ee5e6b4b0d3255bfef95601890afd80709");
    EXPECT_EQ(hex_text(Sha1().add("abc").digest()), "a9993e364706816aba3e25717850c26c9cd0d89d");
    EXPECT_EQ(hex_text(Sha1().add("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq").digest()),
              "84983e441c3bd26ebaae4aa1f95129e5e54670f1");
    EXPECT_EQ(hex_text(Sha1().add(std::string(1'000'000, 'a')).digest()),
              "34aa973cd4c4daa4f61eeb2bdbad27316534016f");
}

TEST(Sha1, DoesNotDependOnThePieces) {
    const std::string text(200, 'x');
    for (std::size_t cut = 0; cut <= text.size(); ++cut)
        EXPECT_EQ(Sha1().add(text.substr(0, cut)).add(text.substr(cut)).digest(), Sha1().add(text).digest());
}

TEST(ByteText, WritesHexadecimalAndBase64) {
    const unsigned char bytes[] = {0, 1, 0xab, 0xff};
    EXPECT_EQ(hex_text(bytes), "0001abff");
    EXPECT_TRUE(is_hex_text("0001abff", 8));
    EXPECT_FALSE(is_hex_text("0001abff", 9));
    EXPECT_FALSE(is_hex_text("0001ABFF", 8));
    // RFC 4648, section 10.
    for (const auto& [plain, coded] :
         {std::pair{"", ""}, {"f", "Zg=="}, {"fo", "Zm8="}, {"foo", "Zm9v"}, {"foobar", "Zm9vYmFy"}})
        EXPECT_EQ(base64_text(plain), coded);
    EXPECT_EQ(base64_text(std::string("\xff\xfe\0", 3)), "//4A");
}

}  // namespace
}  // namespace drover
