// The expected values are the examples of FIPS 180-4 and RFC 4231.

#include "core/sha256.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>

namespace drover {
namespace {

std::string hex(const Sha256Digest& digest) {
    std::string text;
    for (const unsigned char byte : digest) text += fmt::format("{:02x}", byte);
    return text;
}

TEST(Sha256, ExamplesOfTheStandard) {
    EXPECT_EQ(hex(Sha256().digest()), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    EXPECT_EQ(hex(Sha256().add("abc").digest()),
              "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    EXPECT_EQ(hex(Sha256().add("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq").digest()),
              "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    EXPECT_EQ(hex(Sha256().add(std::string(1'000'000, 'a')).digest()),
              "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, PiecesDoNotMatter) {
    const std::string text(200, 'x');
    for (const std::size_t length : {55u, 56u, 63u, 64u, 65u, 119u, 128u, 200u}) {
        Sha256 in_pieces;
        for (std::size_t i = 0; i < length; i += 7)
            in_pieces.add(std::string_view(text).substr(i, std::min<std::size_t>(7, length - i)));
        EXPECT_EQ(in_pieces.digest(), Sha256().add(std::string_view(text).substr(0, length)).digest())
            << length;
    }
}

TEST(HmacSha256, ExamplesOfRfc4231) {
    EXPECT_EQ(hex(hmac_sha256(std::string(20, '\x0b'), "Hi There")),
              "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
    EXPECT_EQ(hex(hmac_sha256("Jefe", "what do ya want for nothing?")),
              "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    EXPECT_EQ(hex(hmac_sha256(std::string(20, '\xaa'), std::string(50, '\xdd'))),
              "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe");
    EXPECT_EQ(
        hex(hmac_sha256("\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f\x10\x11\x12\x13\x14"
                        "\x15\x16\x17\x18\x19",
                        std::string(50, '\xcd'))),
        "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b");
    EXPECT_EQ(
        hex(hmac_sha256(std::string(131, '\xaa'), "Test Using Larger Than Block-Size Key - Hash Key First")),
        "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
    EXPECT_EQ(hex(hmac_sha256(std::string(131, '\xaa'),
                              "This is a test using a larger than block-size key and a larger than "
                              "block-size data. The key needs to be hashed before being used by the HMAC "
                              "algorithm.")),
              "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2");
}

TEST(EqualInConstantTime, ComparesEveryByte) {
    EXPECT_TRUE(equal_in_constant_time("", ""));
    EXPECT_TRUE(equal_in_constant_time("abc", "abc"));
    for (const char* other : {"", "ab", "abcd", "Abc", "aBc", "abC"})
        EXPECT_FALSE(equal_in_constant_time("abc", other)) << other;
}

TEST(UnpredictableBytes, AreNeverTheSame) {
    std::set<std::string> seen;
    for (int i = 0; i < 100; ++i) {
        const std::string bytes = unpredictable_bytes(16);
        EXPECT_EQ(bytes.size(), 16u);
        seen.insert(bytes);
    }
    EXPECT_EQ(seen.size(), 100u);
}

}  // namespace
}  // namespace drover
