#include "hub/web_address.h"

#include <gtest/gtest.h>

#include "support/errors.h"

namespace drover {
namespace {

using test::error_of;
using test::expect_error;

TEST(WebAddress, HasItsParts) {
    const auto address = WebAddress::parse("HTTPS://Hugging.Face:8443/a/b?c=d#e");
    ASSERT_TRUE(address);
    EXPECT_EQ(address->scheme, "https");
    EXPECT_EQ(address->host, "hugging.face");
    EXPECT_EQ(address->port, 8443);
    EXPECT_EQ(address->rest, "/a/b?c=d");
    EXPECT_EQ(address->text(), "https://hugging.face:8443/a/b?c=d");
    EXPECT_EQ(WebAddress::parse("http://x")->text(), "http://x/");
    EXPECT_EQ(WebAddress::parse("http://[::1]:80/x")->origin(), "http://[::1]");
}

TEST(WebAddress, RefusesWhatCouldLeadElsewhere) {
    for (const char* text :
         {"", "x", "file:///etc/passwd", "ftp://x/", "http:///x", "http://user@host/", "http://a:b@host/",
          "http://host:0/", "http://host:99999/", "http://host:8x/", "http://ho st/", "http://host/a b",
          "http://host/\r\nHost: y", "http://[::1", "http://[x]/", "javascript:alert(1)"})
        EXPECT_FALSE(WebAddress::parse(text)) << text;
}

TEST(WebAddress, TellsOriginsApart) {
    const WebAddress hub = *WebAddress::parse("https://hub.example/x");
    EXPECT_TRUE(hub.same_origin(*WebAddress::parse("https://HUB.example:443/y")));
    for (const char* other : {"http://hub.example/", "https://hub.example:444/", "https://hub.example.evil/",
                              "https://evil.example/", "https://xhub.example/"})
        EXPECT_FALSE(hub.same_origin(*WebAddress::parse(other))) << other;
}

TEST(WebAddress, RedirectsStayWithHttpAndDoNotLoseEncryption) {
    const WebAddress from = *WebAddress::parse("https://hub.example/a/b");
    EXPECT_EQ(redirect_target(from, "/c").text(), "https://hub.example/c");
    EXPECT_EQ(redirect_target(from, "//cdn.example/c").text(), "https://cdn.example/c");
    EXPECT_EQ(redirect_target(from, "https://cdn.example/c").text(), "https://cdn.example/c");
    expect_error([&] { redirect_target(from, "http://hub.example/c"); }, {"without encryption"});
    for (const char* bad : {"", "file:///etc/passwd", "c", "http://", "gopher://x/"})
        expect_error([&] { redirect_target(from, bad); }, {"https://hub.example", "neither http nor https"});
}

TEST(WebAddress, QuotesWhatAPathMayNotHold) {
    EXPECT_EQ(url_quoted("a b/ü?#%.json"), "a%20b/%C3%BC%3F%23%25.json");
    EXPECT_EQ(url_quoted("refs/pr/1", ""), "refs%2Fpr%2F1");
}

}  // namespace
}  // namespace drover
