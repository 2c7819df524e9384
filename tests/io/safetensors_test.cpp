#include "io/safetensors.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "io/raw_files.h"
#include "support/errors.h"
#include "support/golden.h"

namespace drover {
namespace {

using test::expect_error;
using test::golden_path;
using test::OwnedTensor;
using test::raw_safetensors;
using test::read_raw;
using test::TemporaryFolder;
using test::write_raw;

constexpr DType all_dtypes[] = {DType::f32, DType::bf16, DType::f16, DType::f64,
                                DType::i32, DType::i64,  DType::u16, DType::u8};

/// A tensor whose bytes are all nonzero and depend on `seed`.
OwnedTensor pattern(DType dtype, const Shape& shape, int seed) {
    OwnedTensor made(dtype, shape);
    auto* bytes = static_cast<unsigned char*>(made.tensor().raw());
    for (std::size_t i = 0; i < made.tensor().bytes(); ++i)
        bytes[i] = static_cast<unsigned char>(1 + (i * 7 + static_cast<std::size_t>(seed) * 31) % 251);
    return made;
}

bool same_bytes(const Tensor& a, const Tensor& b) {
    return a.dtype() == b.dtype() && a.shape() == b.shape() && std::memcmp(a.raw(), b.raw(), a.bytes()) == 0;
}

TEST(SafetensorsRoundTrip, EveryDtypeAndShapeComesBackAsItWas) {
    const TemporaryFolder folder;
    std::vector<OwnedTensor> owned;
    std::map<std::string, Tensor> tensors;
    int seed = 0;
    for (const DType dtype : all_dtypes)
        for (const Shape& shape :
             {Shape{}, Shape{3}, Shape{0}, Shape{5, 0}, Shape{2, 3}, Shape{2, 1, 3, 5}}) {
            owned.push_back(pattern(dtype, shape, ++seed));
            tensors.emplace(std::string(name_of(dtype)) + shape.text(), owned.back());
        }
    write_safetensors(folder / "all.safetensors", tensors, {{"format", "pt"}, {"step", "17"}});

    const SafetensorsFile file(folder / "all.safetensors");
    EXPECT_EQ(file.header().entries.size(), tensors.size());
    EXPECT_EQ(file.header().metadata, (std::map<std::string, std::string>{{"format", "pt"}, {"step", "17"}}));
    for (const auto& [name, tensor] : tensors) EXPECT_TRUE(same_bytes(file.tensor(name), tensor)) << name;
}

TEST(SafetensorsRoundTrip, NamesMayHoldAnyUnicodeAndEscapes) {
    const TemporaryFolder folder;
    const std::vector<std::string> names{
        "", "größe.重み", "quote\"back\\slash", "tab\tline\nzero" + std::string(1, '\0'), "\x7f/\x1b", "😀"};
    OwnedTensor value = pattern(DType::f32, {2}, 1);
    std::map<std::string, Tensor> tensors;
    for (const auto& name : names) tensors.emplace(name, value);
    write_safetensors(folder / "names.safetensors", tensors, {{"ключ", "zn\u0001\"\\"}});

    const SafetensorsFile file(folder / "names.safetensors");
    ASSERT_EQ(file.header().entries.size(), names.size());
    for (const auto& name : names) EXPECT_TRUE(same_bytes(file.tensor(name), value)) << name;
    EXPECT_EQ(file.header().metadata.at("ключ"), "zn\u0001\"\\");
}

TEST(SafetensorsRoundTrip, AFileMayHoldNothing) {
    const TemporaryFolder folder;
    write_safetensors(folder / "none.safetensors", {});
    const SafetensorsFile file(folder / "none.safetensors");
    EXPECT_TRUE(file.header().entries.empty());
    EXPECT_EQ(file.header().metadata.at("format"), "pt");
    EXPECT_EQ(file.find("x"), nullptr);
}

// The golden files come from the reference library, with their metadata put in the order of its keys
// afterwards (the library writes them in random order), which is the order that we write. Bytes can be
// compared wherever there is metadata: we never write the library's empty "__metadata__":{}.
TEST(SafetensorsWriter, WritesByteForByteWhatTheReferenceLibraryWrites) {
    const TemporaryFolder folder;
    int compared = 0;
    for (const auto& item : std::filesystem::recursive_directory_iterator(golden_path(""))) {
        if (item.path().extension() != ".safetensors") continue;
        // Those were written by us.
        if (item.path().string().find("/earlier_checkpoint/") != std::string::npos) continue;
        const SafetensorsFile golden(item.path());
        if (golden.header().metadata.empty()) continue;
        std::map<std::string, Tensor> tensors;
        for (const auto& entry : golden.header().entries)
            tensors.emplace(entry.name, golden.tensor(entry.name));
        write_safetensors(folder / "again.safetensors", tensors, golden.header().metadata);
        EXPECT_TRUE(read_raw(folder / "again.safetensors") == read_raw(item.path())) << item.path();
        ++compared;
    }
    EXPECT_GE(compared, 20);
}

TEST(SafetensorsWriter, LaysTensorsOutByTypeAndThenByName) {
    const SafetensorsLayout layout({{"b", DType::u8, {3}},
                                    {"layers.2", DType::f32, {1}},
                                    {"layers.10", DType::f32, {2}},
                                    {"i", DType::i32, {1}},
                                    {"d", DType::f64, {}},
                                    {"j", DType::i64, {1}},
                                    {"h", DType::f16, {1}},
                                    {"a", DType::bf16, {0, 4}}});
    const std::string& header = layout.header_bytes();
    EXPECT_EQ(header.size() % 8, 0u);
    EXPECT_TRUE(header.substr(8).starts_with(
        R"({"__metadata__":{"format":"pt"},"j":{"dtype":"I64","shape":[1],"data_offsets":[0,8]},"d":{"dtype":"F64","shape":[],"data_offsets":[8,16]},"layers.10":)"))
        << header.substr(8);
    std::uint64_t expected = header.size();
    for (const auto& [name, bytes] : std::vector<std::pair<std::string, std::uint64_t>>{
             {"j", 8}, {"d", 8}, {"layers.10", 8}, {"layers.2", 4}, {"i", 4}, {"a", 0}, {"h", 2}, {"b", 3}}) {
        EXPECT_EQ(layout.offset_of(name), expected) << name;
        expected += bytes;
    }
    EXPECT_EQ(layout.file_size(), expected);
}

TEST(SafetensorsWriter, SeveralWritersCanFillOneFile) {
    const TemporaryFolder folder;
    const OwnedTensor whole = pattern(DType::f32, {4, 3}, 5);
    const SafetensorsLayout layout({{"w", DType::f32, {4, 3}}});
    std::string bytes(layout.file_size(), '\0');
    // The lower half of the rows first, then the upper half, then the header: any order gives the same file.
    const auto* data = static_cast<const char*>(whole.tensor().raw());
    const std::size_t begin = layout.offset_of("w"), half = whole.tensor().bytes() / 2;
    bytes.replace(begin + half, half, data + half, half);
    bytes.replace(begin, half, data, half);
    bytes.replace(0, layout.header_bytes().size(), layout.header_bytes());
    write_raw(folder / "parts.safetensors", bytes);
    write_safetensors(folder / "whole.safetensors", {{"w", whole}});
    EXPECT_EQ(read_raw(folder / "parts.safetensors"), read_raw(folder / "whole.safetensors"));
}

TEST(SafetensorsWriter, RefusesNamesThatAFileCannotHold) {
    expect_error([] { SafetensorsLayout({{"a\xff", DType::f32, {1}}}); }, {"UTF-8"});
    expect_error([] { SafetensorsLayout({{"a", DType::f32, {1}}}, {{"k", "\xc0"}}); }, {"UTF-8"});
    expect_error(
        [] {
            SafetensorsLayout({{"__metadata__", DType::f32, {1}}});
        },
        {"\"__metadata__\" is reserved"});
    expect_error(
        [] {
            SafetensorsLayout({{"a", DType::f32, {1}}, {"a", DType::i32, {1}}});
        },
        {"\"a\" is given twice"});
}

TEST(SafetensorsWriter, ReplacesAFileThatIsStillMapped) {
    const TemporaryFolder folder;
    const OwnedTensor first = pattern(DType::f32, {100}, 1), second = pattern(DType::f32, {100}, 2);
    write_safetensors(folder / "f.safetensors", {{"x", first}});
    const SafetensorsFile old(folder / "f.safetensors");
    write_safetensors(folder / "f.safetensors", {{"x", second}});
    EXPECT_TRUE(same_bytes(old.tensor("x"), first));
    EXPECT_TRUE(same_bytes(SafetensorsFile(folder / "f.safetensors").tensor("x"), second));
    EXPECT_FALSE(std::filesystem::exists(folder / "f.safetensors.partial"));
}

TEST(SafetensorsWriter, NamesTheFileWhenTheFolderIsMissing) {
    const TemporaryFolder folder;
    expect_error([&] { write_safetensors(folder / "no/such/f.safetensors", {}); },
                 {"no/such/f.safetensors", "No such file"});
}

TEST(SafetensorsReader, AllowsWhatTheFormatAllows) {
    const TemporaryFolder folder;
    // Header padding, entries in any order, members in any order, no metadata, empty tensors between others.
    write_raw(folder / "odd.safetensors",
              raw_safetensors("{\"b\":{\"shape\":[2],\"data_offsets\":[3,5],\"dtype\":\"U8\"}, "
                              "\"e\":{\"dtype\":\"F32\",\"shape\":[0,7],\"data_offsets\":[3,3]},"
                              "\"a\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]}}   \n",
                              5));
    const SafetensorsFile file(folder / "odd.safetensors");
    EXPECT_TRUE(file.header().metadata.empty());
    ASSERT_EQ(file.header().entries.size(), 3u);
    EXPECT_EQ(file.header().entries[0].name, "a");
    EXPECT_EQ(file.header().entries[1].name, "e");
    EXPECT_EQ(file.header().entries[2].name, "b");
    EXPECT_EQ(file.tensor("b").data<std::uint8_t>()[1], 4);
    EXPECT_EQ(file.tensor("e").shape(), (Shape{0, 7}));
    EXPECT_TRUE(file.tensor("e"));
}

TEST(SafetensorsReader, KnowsEveryTypeOfTheFormat) {
    const TemporaryFolder folder;
    const std::map<std::string, int> bits{
        {"BOOL", 8},        {"U8", 8},          {"I8", 8},      {"I16", 16},    {"U16", 16},    {"F16", 16},
        {"BF16", 16},       {"I32", 32},        {"U32", 32},    {"F32", 32},    {"F64", 64},    {"I64", 64},
        {"U64", 64},        {"C64", 64},        {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F4", 4},
        {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"F6_E2M3", 6}, {"F6_E3M2", 6}};
    for (const auto& [name, size] : bits) {
        const int bytes = 4 * size / 8;
        write_raw(folder / "t.safetensors",
                  raw_safetensors("{\"t\":{\"dtype\":\"" + name + "\",\"shape\":[4],\"data_offsets\":[0," +
                                      std::to_string(bytes) + "]}}",
                                  static_cast<std::size_t>(bytes)));
        const SafetensorsFile file(folder / "t.safetensors");
        EXPECT_EQ(name_of(file.header().entries.at(0).dtype), name);
        EXPECT_EQ(bits_of(file.header().entries.at(0).dtype), size) << name;
        const bool usable = std::any_of(std::begin(all_dtypes), std::end(all_dtypes),
                                        [&](DType dtype) { return name_of(file_dtype_of(dtype)) == name; });
        if (usable)
            EXPECT_EQ(file.tensor("t").bytes(), static_cast<std::size_t>(bytes)) << name;
        else
            expect_error([&] { file.tensor("t"); }, {"t.safetensors", "\"t\"", name});
    }
}

TEST(SafetensorsReader, NamesWhatItCannotGive) {
    const TemporaryFolder folder;
    write_raw(folder / "five.safetensors",
              raw_safetensors(R"({"deep":{"dtype":"U8","shape":[1,1,1,1,2],"data_offsets":[0,2]}})", 2));
    const SafetensorsFile file(folder / "five.safetensors");
    expect_error([&] { file.tensor("deep"); }, {"five.safetensors", "\"deep\"", "5 dimensions"});
    expect_error([&] { file.tensor("shallow"); }, {"five.safetensors", "no tensor \"shallow\""});
}

TEST(SafetensorsReader, MovesWithItsMap) {
    const TemporaryFolder folder;
    const OwnedTensor first = pattern(DType::f32, {4}, 1), second = pattern(DType::f32, {4}, 2);
    write_safetensors(folder / "1.safetensors", {{"x", first}});
    write_safetensors(folder / "2.safetensors", {{"x", second}});
    SafetensorsFile a(folder / "1.safetensors");
    SafetensorsFile b(std::move(a));
    EXPECT_TRUE(same_bytes(b.tensor("x"), first));
    b = SafetensorsFile(folder / "2.safetensors");
    EXPECT_TRUE(same_bytes(b.tensor("x"), second));
    EXPECT_EQ(b.path().filename(), "2.safetensors");
}

}  // namespace
}  // namespace drover
