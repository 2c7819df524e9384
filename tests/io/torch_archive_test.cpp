#include "io/torch_archive.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <limits>

#include "fuzz/torch_pickle_input.h"
#include "io/stored_zip.h"
#include "io/torch_pickle.h"
#include "support/errors.h"
#include "support/golden.h"

namespace drover {
namespace {

using Kind = PickleValue::Kind;

TEST(TorchArchive, HoldsEveryKindOfValueThatItWrites) {
    test::TemporaryFolder folder;
    PickleWriter pickle;
    const std::vector<std::int64_t> integers = {
        0, 255, 256, 65535, 65536, -1, -1000, 1 << 30, 1LL << 40, std::numeric_limits<std::int64_t>::min()};
    pickle.begin_dict();
    pickle.text("integers");
    pickle.begin_dict();
    for (const std::int64_t value : integers) {
        pickle.integer(value);
        pickle.integer(value);
    }
    pickle.end_dict();
    pickle.text("real");
    pickle.real(-0.1);
    pickle.text("yes");
    pickle.boolean(true);
    pickle.text("no");
    pickle.boolean(false);
    pickle.text("héllo ✓");
    pickle.text(std::string(70000, 'x'));
    pickle.text("nothing");
    pickle.begin_dict();
    pickle.end_dict();
    pickle.text("dtype");
    pickle.dtype(DType::bf16);
    pickle.text("size");
    pickle.size({3, 4});
    pickle.text("reference");
    pickle.tensor_reference(300);
    pickle.end_dict();
    write_torch_file(folder / "values.pt", pickle, {});

    const TorchFile file(folder / "values.pt");
    file.verify();
    const PickleValue root = file.root();
    ASSERT_EQ(root["integers"].size(), integers.size());
    for (std::size_t i = 0; i < integers.size(); ++i) {
        EXPECT_EQ(root["integers"].key(i).integer(), integers[i]);
        EXPECT_EQ(root["integers"].value(i).integer(), integers[i]);
    }
    EXPECT_EQ(root["real"].number(), -0.1);
    EXPECT_TRUE(root["yes"].boolean());
    EXPECT_FALSE(root["no"].boolean());
    EXPECT_EQ(root["héllo ✓"].text(), std::string(70000, 'x'));
    EXPECT_EQ(root["nothing"].size(), 0u);
    EXPECT_EQ(root["dtype"].kind(), Kind::object);
    EXPECT_EQ(root["size"].at(1).integer(), 4);
    EXPECT_EQ(root["reference"].tensor_reference(), 300);
    EXPECT_EQ(root["dtype"].tensor_reference(), std::nullopt);
    EXPECT_EQ(root["size"].tensor_reference(), std::nullopt);
}

TEST(TorchArchive, TensorsHaveTheirTypesShapesAndAlignedElements) {
    test::TemporaryFolder folder;
    PickleWriter pickle;
    std::vector<test::OwnedTensor> tensors;
    const auto add = [&](std::string_view name, DType dtype, const Shape& shape) {
        pickle.text(name);
        pickle.tensor(dtype, {shape.begin(), shape.end()});
        auto* const bytes = static_cast<unsigned char*>(tensors.emplace_back(dtype, shape).tensor().raw());
        for (std::size_t i = 0; i < tensors.back().tensor().bytes(); ++i)
            bytes[i] = static_cast<unsigned char>(i * 7 + tensors.size());
    };
    pickle.begin_dict();
    add("float32", DType::f32, {3, 5});
    add("bfloat16", DType::bf16, {2, 3, 4});
    add("float16", DType::f16, {7});
    add("float64", DType::f64, {1, 1});
    add("int64", DType::i64, {});
    add("uint8", DType::u8, {200, 301});
    add("empty", DType::f32, {4, 0});
    pickle.text("same");
    pickle.same_tensor(0, {15});
    pickle.end_dict();
    write_torch_file(folder / "tensors.pt", pickle, {tensors.begin(), tensors.end()});

    const TorchFile file(folder / "tensors.pt");
    file.verify();
    const MappedFile bytes(folder / "tensors.pt");
    ASSERT_EQ(file.root().size(), 8u);
    for (std::size_t i = 0; i < tensors.size(); ++i) {
        SCOPED_TRACE(file.root().key(i).text());
        const Tensor read = file.root().value(i).packed_tensor();
        EXPECT_EQ(name_of(read.dtype()), i == 6 ? "float32" : file.root().key(i).text());
        EXPECT_EQ(read.shape(), tensors[i].tensor().shape());
        EXPECT_EQ(std::memcmp(read.raw(), tensors[i].tensor().raw(), read.bytes()), 0);
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(read.raw()) % 64, 0u);
    }
    EXPECT_EQ(file.root()["same"].tensor().storage, file.root()["float32"].tensor().storage);
    EXPECT_EQ(file.root()["same"].packed_tensor().shape(), Shape{15});
}

TEST(TorchArchive, HasFieldsOf64BitsWhereTheyAreNeeded) {
    // A file with holes: only what is written takes space.
    test::TemporaryFolder folder;
    PickleWriter pickle;
    pickle.begin_dict();
    pickle.text("large");
    pickle.tensor(DType::u8, {5LL << 30});
    pickle.text("behind");
    pickle.tensor(DType::u8, {4});
    pickle.end_dict();
    const TorchArchive archive("archive", pickle);
    const std::string path = (folder / "large.pt").string();
    const int descriptor = open(path.c_str(), O_WRONLY | O_CREAT, 0644);
    ASSERT_GE(descriptor, 0);
    const auto write = [&](std::uint64_t offset, std::string_view bytes) {
        ASSERT_EQ(pwrite(descriptor, bytes.data(), bytes.size(), static_cast<off_t>(offset)),
                  static_cast<ssize_t>(bytes.size()));
    };
    ASSERT_EQ(ftruncate(descriptor, static_cast<off_t>(archive.file_size())), 0);
    write(archive.storage_offset(1), "abcd");
    for (const TorchArchive::Part& part : archive.other_parts({1, zip_checksum("abcd")}))
        write(part.offset, part.bytes);
    close(descriptor);
    EXPECT_EQ(std::filesystem::file_size(path), archive.file_size());

    const MappedFile file(path);
    const StoredZip zip(file.bytes(), "large.pt");
    EXPECT_EQ(zip.find("archive/data/0")->content.size(), 5ULL << 30);
    EXPECT_EQ(zip.find("archive/data/0")->crc32, 1u);
    EXPECT_EQ(zip.find("archive/data/1")->content, "abcd");
    zip.verify("archive/data/1");
    const TorchPickle read(file.bytes(), "large.pt");
    EXPECT_EQ(read.root()["behind"].packed_tensor().data<std::uint8_t>()[3], 'd');
}

TEST(TorchArchive, MayHaveMoreEntriesThanAnOldDirectoryCounts) {
    PickleWriter pickle;
    pickle.begin_dict();
    for (int i = 0; i < 70000; ++i) {
        pickle.integer(i);
        pickle.tensor(DType::u8, {1});
    }
    pickle.end_dict();
    const TorchArchive archive("archive", pickle);
    std::string bytes(archive.file_size(), '\0');
    for (std::size_t i = 0; i < 70000; ++i) bytes[archive.storage_offset(i)] = static_cast<char>(i);
    std::vector<std::uint32_t> checksums;
    for (std::size_t i = 0; i < 70000; ++i) {
        const char byte = static_cast<char>(i);
        checksums.push_back(zip_checksum({&byte, 1}));
    }
    for (const TorchArchive::Part& part : archive.other_parts(checksums))
        bytes.replace(part.offset, part.bytes.size(), part.bytes);
    const TorchPickle read(bytes, "many.pt");
    read.verify();
    EXPECT_EQ(read.root().value(69999).packed_tensor().data<std::uint8_t>()[0], 69999 % 256);
}

TEST(TorchPickle, MakesNoOtherObjectThanAReference) {
    test::expect_error(
        [] {
            const std::string program =
                "\x80\x02"
                "ccollections\nOrderedDict\n)\x81.";
            TorchPickle(test::stored_archive({{"a/data.pkl", program}}), "file.pt");
        },
        {"file.pt", "makes an object of a kind that is not on the list"});
}

}  // namespace
}  // namespace drover
