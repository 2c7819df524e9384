#include "core/json.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "support/golden.h"

namespace drover {
namespace {

std::string message_of(std::string_view text) {
    try {
        parse_json(text, "x.json");
    } catch (const Error& error) {
        return error.what();
    }
    return "";
}

TEST(Json, ErrorsNameTheFileAndThePlace) {
    EXPECT_NE(message_of("{\"a\": }").find("x.json is not valid JSON"), std::string::npos);
    EXPECT_NE(message_of("{\"a\": }").find("line 1"), std::string::npos);
    EXPECT_NE(message_of("{\"a\": 1, \"b\": {\"c\": 1, \"c\": 2}}").find("\"c\" twice"), std::string::npos);
    EXPECT_EQ(message_of("{\"a\": {\"c\": 1}, \"b\": {\"c\": 2}}"), "")
        << "equal keys of different objects are fine";
    EXPECT_NE(message_of("\xff\xfe"), "");
    EXPECT_NE(message_of(""), "");
}

TEST(Json, DeepNestingIsRefused) {
    const std::string deep(200000, '[');
    EXPECT_NE(message_of(deep), "");
    EXPECT_NE(message_of(deep + std::string(200000, ']')).find("nests"), std::string::npos);
    EXPECT_NE(message_of(std::string_view("{}\0junk", 7)).find("zero byte"), std::string::npos);
}

TEST(Json, SortedTextIsLaidOutAsPythonDoes) {
    const Json value = parse_json(R"({"b": [1, 2.0, 1e-05], "a": {"d": null, "c": true}})", "x");
    EXPECT_EQ(sorted_json_text(value, 2),
              "{\n  \"a\": {\n    \"c\": true,\n    \"d\": null\n  },\n  \"b\": [\n    1,\n    2.0,\n    "
              "1e-05\n  ]\n}");
}

TEST(Files, AtomicWriteReplacesAndLeavesNothingBeside) {
    const test::TemporaryFolder folder;
    write_file_atomically(folder / "a.txt", "one");
    write_file_atomically(folder / "a.txt", "two");
    EXPECT_EQ(read_text_file(folder / "a.txt"), "two");
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
    EXPECT_THROW(write_file_atomically(folder / "missing/a.txt", "x"), Error);
    EXPECT_THROW(read_text_file(folder / "none"), Error);
    EXPECT_THROW(read_text_file(folder.path()), Error);
}

}  // namespace
}  // namespace drover
