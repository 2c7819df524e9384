#include <gtest/gtest.h>
#include <sys/stat.h>

#include "io/raw_files.h"
#include "io/safetensors.h"
#include "support/errors.h"
#include "support/golden.h"

namespace drover {
namespace {

using test::error_of;
using test::expect_error;
using test::raw_safetensors;
using test::TemporaryFolder;
using test::write_raw;

struct BadFile {
    std::string what;
    std::string bytes;
    std::vector<std::string> says;
};

std::string json_file(const std::string& json, std::size_t data_bytes = 0) {
    return raw_safetensors(json, data_bytes);
}

std::string one_tensor(const std::string& members, std::size_t data_bytes = 0) {
    return json_file("{\"weight\":{" + members + "}}", data_bytes);
}

std::string with_length(std::uint64_t length, const std::string& rest) {
    return std::string(reinterpret_cast<const char*>(&length), sizeof length) + rest;
}

std::vector<BadFile> bad_files() {
    const std::string good = R"("dtype":"F32","shape":[2],"data_offsets":[0,8])";
    const std::string entry_a = R"("a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)";
    std::string deep(200'000, '[');
    return {
        {"an empty file", "", {"has 0 bytes", "fetch the file again"}},
        {"less than the length", "1234567", {"has 7 bytes"}},
        {"LFS pointer",
         "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 10\n",
         {"Git LFS pointer", "git lfs pull"}},
        {"huge header", with_length(~0ull, "{}"), {"not a safetensors file", "18446744073709551615"}},
        {"header over the limit", with_length(100'000'001, std::string(64, ' ')), {"100000001", "100000000"}},
        {"truncated header",
         one_tensor(good, 8).substr(0, 30),
         {"ends inside its header", "fetch the file again"}},
        {"no header", with_length(0, ""), {"does not start with \"{\""}},
        {"header of another kind", json_file("[1]"), {"does not start with \"{\""}},
        {"spaces first", json_file("  {}"), {"does not start with \"{\""}},
        {"byte order mark", json_file("\xEF\xBB\xBF{}"), {"does not start with \"{\""}},
        {"not JSON", json_file("{\"a\":"), {"not valid JSON", "at byte 6"}},
        {"text behind the object", json_file("{} {}"), {"not valid JSON"}},
        {"not UTF-8", json_file("{\"\xC3\x28\":{" + good + "}}", 8), {"not valid JSON in UTF-8"}},
        {"half a surrogate pair", json_file("{\"\\ud800\":{" + good + "}}", 8), {"not valid JSON in UTF-8"}},
        {"zero byte", json_file(std::string("{}\0 ", 4)), {"zero byte", "at byte 2"}},
        {"deep nesting", json_file("{\"weight\":" + deep), {"\"weight\"", "is described by a list"}},
        {"nested shape",
         one_tensor(R"("dtype":"F32","shape":[[2]],"data_offsets":[0,8])", 8),
         {"\"weight\"", "a list in its shape"}},
        {"nested object", one_tensor(R"("dtype":{"a":1})"), {"\"weight\"", "an object as \"dtype\""}},
        {"duplicate tensor",
         json_file("{\"weight\":{" + good +
                       "},\"x\":{\"dtype\":\"U8\",\"shape\":[0],"
                       "\"data_offsets\":[8,8]},\"weight\":{" +
                       good + "}}",
                   8),
         {"\"weight\"", "twice"}},
        {"duplicate member", one_tensor(R"("shape":[2],)" + good, 8), {"\"weight\"", "\"shape\" twice"}},
        {"duplicate metadata", json_file(R"({"__metadata__":{"k":"1","k":"2"}})"), {"\"k\" twice"}},
        {"two metadata", json_file(R"({"__metadata__":{},"__metadata__":{}})"), {"\"__metadata__\" twice"}},
        {"metadata is a string", json_file(R"({"__metadata__":"pt"})"), {"a string as \"__metadata__\""}},
        {"metadata is null", json_file(R"({"__metadata__":null})"), {"null as \"__metadata__\""}},
        {"metadata of numbers",
         json_file(R"({"__metadata__":{"step":1}})"),
         {"a number for \"step\"", "only strings"}},
        {"tensor is a number", json_file(R"({"weight":1})"), {"\"weight\"", "a number instead of an object"}},
        {"no dtype", one_tensor(R"("shape":[2],"data_offsets":[0,8])", 8), {"\"weight\"", "no dtype"}},
        {"no shape", one_tensor(R"("dtype":"F32","data_offsets":[0,8])", 8), {"\"weight\"", "no shape"}},
        {"no offsets", one_tensor(R"("dtype":"F32","shape":[2])", 8), {"\"weight\"", "no data_offsets"}},
        {"unknown member", one_tensor(good + R"(,"strides":"x")", 8), {"\"weight\"", "\"strides\""}},
        {"unknown dtype",
         one_tensor(R"("dtype":"F31","shape":[2],"data_offsets":[0,8])", 8),
         {"\"weight\"", "unknown element type \"F31\""}},
        {"negative size",
         one_tensor(R"("dtype":"F32","shape":[-2],"data_offsets":[0,8])", 8),
         {"\"weight\"", "a negative number in its shape"}},
        {"fractional size",
         one_tensor(R"("dtype":"F32","shape":[2.0],"data_offsets":[0,8])", 8),
         {"\"weight\"", "fractional"}},
        {"size over 64 bits",
         one_tensor(R"("dtype":"F32","shape":[99999999999999999999],"data_offsets":[0,8])", 8),
         {"\"weight\"", "too large"}},
        {"size over 63 bits",
         one_tensor(R"("dtype":"U8","shape":[0,9223372036854775808],"data_offsets":[0,0])"),
         {"\"weight\"", "overflows"}},
        {"overflowing product",
         one_tensor(R"("dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0])"),
         {"\"weight\"", "overflows"}},
        {"overflow before a zero",
         one_tensor(R"("dtype":"U8","shape":[4294967296,4294967296,0],"data_offsets":[0,0])"),
         {"\"weight\"", "overflows"}},
        {"overflowing bytes",
         one_tensor(R"("dtype":"F64","shape":[4611686018427387904],"data_offsets":[0,0])"),
         {"\"weight\"", "size in bytes overflows"}},
        {"half a byte",
         one_tensor(R"("dtype":"F4","shape":[3],"data_offsets":[0,2])", 2),
         {"\"weight\"", "whole number of bytes"}},
        {"wrong size",
         one_tensor(R"("dtype":"F32","shape":[3],"data_offsets":[0,8])", 8),
         {"\"weight\"", "takes 8 bytes", "F32[3] needs 12"}},
        {"end before begin",
         one_tensor(R"("dtype":"F32","shape":[2],"data_offsets":[8,0])", 8),
         {"\"weight\"", "ends at byte 0, before its start at byte 8"}},
        {"one offset",
         one_tensor(R"("dtype":"F32","shape":[2],"data_offsets":[8])", 8),
         {"\"weight\"", "1 data_offsets"}},
        {"three offsets",
         one_tensor(R"("dtype":"F32","shape":[2],"data_offsets":[0,8,8])", 8),
         {"\"weight\"", "3 data_offsets"}},
        {"negative offset",
         one_tensor(R"("dtype":"F32","shape":[2],"data_offsets":[-8,0])", 8),
         {"\"weight\"", "a negative number in its data_offsets"}},
        {"gap at the start",
         one_tensor(R"("dtype":"F32","shape":[2],"data_offsets":[4,12])", 12),
         {"\"weight\"", "starts at byte 4", "ends at byte 0"}},
        {"gap",
         json_file("{" + entry_a + R"("weight":{"dtype":"U8","shape":[2],"data_offsets":[5,7]}})", 7),
         {"\"weight\"", "starts at byte 5", "ends at byte 4"}},
        {"overlap",
         json_file("{" + entry_a + R"("weight":{"dtype":"U8","shape":[2],"data_offsets":[3,5]}})", 5),
         {"\"weight\"", "overlaps \"a\""}},
        {"the same bytes twice",
         json_file("{" + entry_a + R"("weight":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", 4),
         {"\"weight\"", "overlaps \"a\""}},
        {"truncated data",
         one_tensor(good, 7),
         {"ends inside the tensor \"weight\"", "8 bytes of data", "has 7", "fetch the file again"}},
        {"offsets far outside",
         one_tensor(R"("dtype":"U8","shape":[1152921504606846976],"data_offsets":[0,1152921504606846976])",
                    8),
         {"ends inside the tensor \"weight\"", "fetch the file again"}},
        {"trailing bytes", one_tensor(good, 11), {"3 bytes after its last tensor"}},
        {"data without tensors", json_file("{}", 8), {"8 bytes after its last tensor"}},
    };
}

TEST(SafetensorsRejects, EveryKindOfBadFileWithOneClearSentence) {
    const TemporaryFolder folder;
    for (const BadFile& bad : bad_files()) {
        SCOPED_TRACE(bad.what);
        write_raw(folder / "bad.safetensors", bad.bytes);
        const std::string message = error_of([&] { SafetensorsFile file(folder / "bad.safetensors"); });
        EXPECT_NE(message.find("bad.safetensors"), std::string::npos) << message;
        for (const std::string& part : bad.says)
            EXPECT_NE(message.find(part), std::string::npos) << "no \"" << part << "\" in: " << message;
        EXPECT_LT(message.size(), 600u);
    }
}

TEST(SafetensorsRejects, KeepsMessagesShortAndPrintable) {
    const TemporaryFolder folder;
    std::string name(100'000, 'x');
    name[0] = '\x1b';
    write_raw(folder / "long.safetensors",
              json_file("{\"\\u001b" + name.substr(1) +
                            "\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,2]}}",
                        2));
    const std::string message = error_of([&] { SafetensorsFile file(folder / "long.safetensors"); });
    EXPECT_NE(message.find("\\x1bxxx"), std::string::npos) << message;
    EXPECT_LT(message.size(), 600u);
}

TEST(SafetensorsRejects, AFileCutAtAnyByte) {
    const TemporaryFolder folder;
    const float values[] = {1, 2, 3};
    write_safetensors(folder / "whole.safetensors",
                      {{"x", Tensor::of(values, {3})}, {"y", Tensor::of(values, {1})}});
    const std::string whole = test::read_raw(folder / "whole.safetensors");
    for (std::size_t size = 0; size < whole.size(); ++size)
        test::expect_error(
            [&] { SafetensorsHeader::parse(std::string_view(whole).substr(0, size), size, "cut"); },
            {"cut "});
    EXPECT_NO_THROW(SafetensorsHeader::parse(whole, whole.size(), "whole"));
}

TEST(SafetensorsRejects, WhatIsNotAFile) {
    const TemporaryFolder folder;
    expect_error([&] { SafetensorsFile file(folder.path()); }, {"it is a folder"});
    expect_error([&] { SafetensorsFile file(folder / "absent.safetensors"); },
                 {"absent.safetensors", "No such file"});
    ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
    expect_error([&] { SafetensorsFile file(folder / "pipe"); }, {"pipe", "not a regular file"});
}

TEST(SafetensorsLimits, TheLargestSizeBesideAZeroIsRead) {
    const TemporaryFolder folder;
    write_raw(folder / "file.safetensors",
              one_tensor(R"("dtype":"F32","shape":[9223372036854775807,0],"data_offsets":[0,0])"));
    const SafetensorsFile file(folder / "file.safetensors");
    EXPECT_EQ(file.header().entries.at(0).shape, (std::vector<std::int64_t>{9223372036854775807, 0}));
}

}  // namespace
}  // namespace drover
