#include "core/json_text.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "core/text_file.h"
#include "support/errors.h"
#include "support/golden.h"

namespace drover {
namespace {

void expect_refused(std::string_view text, std::initializer_list<std::string_view> parts,
                    const CodePlace& where = CodePlace::here()) {
    test::expect_error([&] { parse_json(text, "x.json"); }, parts, where);
}

TEST(Json, ErrorsNameTheFileAndThePlace) {
    expect_refused("{\"a\": }", {"x.json is not valid JSON", "line 1"});
    expect_refused("{\"a\": 1, \"b\": {\"c\": 1, \"c\": 2}}", {"x.json", "\"c\" twice"});
    EXPECT_NO_THROW(parse_json("{\"a\": {\"c\": 1}, \"b\": {\"c\": 2}}", "x.json"))
        << "equal keys of different objects are fine";
    expect_refused("\xff\xfe", {"x.json is not valid JSON"});
    expect_refused("", {"x.json is not valid JSON"});
}

TEST(Json, DeepNestingIsRefused) {
    const std::string deep(200000, '[');
    expect_refused(deep, {"x.json nests"});
    expect_refused(deep + std::string(200000, ']'), {"x.json nests"});
    expect_refused(std::string_view("{}\0junk", 7), {"x.json", "zero byte"});
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
    test::expect_error([&] { write_file_atomically(folder / "missing/a.txt", "x"); },
                       {(folder / "missing/a.txt").string()});
    test::expect_error([&] { read_text_file(folder / "none"); },
                       {(folder / "none").string(), "No such file"});
    test::expect_error([&] { read_text_file(folder.path()); }, {folder.path().string(), "it is a folder"});
}

}  // namespace
}  // namespace drover
