#include "text/utf8.h"

#include <gtest/gtest.h>

namespace drover {
namespace {

TEST(Utf8, EveryCodePointGoesThereAndBack) {
    for (char32_t code = 0; code <= 0x10FFFF; ++code) {
        if (code >= 0xD800 && code < 0xE000) continue;
        std::string text;
        append_utf8(text, code);
        const Utf8Char decoded = decode_utf8(text);
        ASSERT_EQ(decoded.code_point, code);
        ASSERT_EQ(decoded.length, text.size());
    }
}

TEST(Utf8, WhatIsNotUtf8HasNoLength) {
    for (const char* bad : {"\x80", "\xC1\x81", "\xC3", "\xE0\x80\x80", "\xE2\x82", "\xED\xA0\x80",
                            "\xF0\x80\x80\x80", "\xF4\x90\x80\x80", "\xF8\x88\x80\x80\x80", "\xC3("})
        EXPECT_EQ(decode_utf8(bad).length, 0u) << bad;
}

TEST(Utf8, ThePrefixEndsBeforeTheFirstBadByte) {
    EXPECT_EQ(valid_utf8_prefix(""), 0u);
    EXPECT_EQ(valid_utf8_prefix("plain ascii, longer than eight"), 30u);
    EXPECT_EQ(valid_utf8_prefix("gr\xC3\xBC\xC3\x9F dich"), 11u);
    EXPECT_EQ(valid_utf8_prefix("0123456789\xFFtail"), 10u);
    EXPECT_EQ(valid_utf8_prefix("cut \xE2\x82"), 4u);
}

}  // namespace
}  // namespace drover
