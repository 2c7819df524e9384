#include "convert/dcp_checkpoint.h"

#include <gtest/gtest.h>

#include "convert/checkpoints.h"
#include "fuzz/torch_pickle_input.h"
#include "io/raw_files.h"
#include "support/errors.h"

namespace drover {
namespace {

namespace fs = std::filesystem;

TEST(DcpCheckpoint, IsTheModelThatWasSharded) {
    for (const std::string name : {"dcp/fsdp", "dcp/plain"}) {
        SCOPED_TRACE(name);
        ASSERT_TRUE(DcpCheckpoint::is_one(test::golden_path(name)));
        const DcpCheckpoint chunks(test::golden_path(name), "model");
        EXPECT_GT(chunks.items().size(), chunks.tensors().size());
        test::TemporaryFolder folder;
        write_conversion(plan_model(chunks.tensors(), ModelFormat::safetensors, 1 << 20), chunks,
                         folder.path(), {}, {.buffer_bytes = 200, .flush_bytes = 1000});
        EXPECT_EQ(test::content_of_model(folder.path()),
                  test::content_of_model(test::golden_path("generate/llama")));
    }
    EXPECT_FALSE(DcpCheckpoint::is_one(test::golden_path("generate/llama")));
}

TEST(DcpCheckpoint, AnotherEntryCanBeNamed) {
    const DcpCheckpoint chunks(test::golden_path("dcp/plain"), "");
    EXPECT_EQ(chunks.tensors().front().name, "model.embed_tokens.weight");
}

TEST(DcpCheckpoint, SaysWhatIsMissingOrDamaged) {
    const fs::path golden = test::golden_path("dcp/fsdp");
    const auto expect = [&](const std::string& from, const std::string& to,
                            std::initializer_list<std::string_view> parts) {
        test::TemporaryFolder folder;
        for (const char* name : {"__0_0.distcp", "__1_0.distcp"}) fs::copy(golden / name, folder / name);
        std::string metadata = test::read_raw(golden / ".metadata");
        const auto at = metadata.find(from);
        ASSERT_NE(at, std::string::npos);
        metadata.replace(at, from.size(), to);
        test::write_raw(folder / ".metadata", metadata);
        test::expect_error([&] { DcpCheckpoint(folder.path(), "model"); }, parts);
    };
    expect("__1_0.distcp", "__7_0.distcp", {"__7_0.distcp", "No such file"});
    expect("__1_0.distcp", "../_0.distcp", {"not a file name inside the folder"});
    expect("MetadataIndex", "MetadataIndes", {"metadata.MetadataIndes", "not one of the few things"});
    expect("storage_data", "storage_dato", {"no entry \"storage_data\""});

    test::TemporaryFolder folder;
    fs::copy(golden / ".metadata", folder / ".metadata");
    fs::copy(golden / "__0_0.distcp", folder / "__0_0.distcp");
    test::write_raw(folder / "__1_0.distcp", "short");
    test::expect_error([&] { DcpCheckpoint(folder.path(), "model"); },
                       {"a chunk beyond the end of __1_0.distcp"});
    test::write_raw(folder / ".metadata", "\x80\x04N.");
    test::expect_error([&] { DcpCheckpoint(folder.path(), "model"); }, {"not the metadata of a checkpoint"});
}

TEST(DcpCheckpoint, AnyFlippedBitIsAnErrorOrDoesNotMatter) {
    const std::string metadata = test::read_raw(test::golden_path("dcp/fsdp/.metadata"));
    test::TemporaryFolder folder;
    for (const char* name : {"__0_0.distcp", "__1_0.distcp"})
        fs::copy(test::golden_path("dcp/fsdp") / name, folder / name);
    std::size_t refused = 0;
    for (std::size_t i = 0; i < metadata.size(); i += 17) {
        std::string flipped = metadata;
        flipped[i] = static_cast<char>(flipped[i] ^ (1 << (i % 8)));
        test::write_raw(folder / ".metadata", flipped);
        refused += !test::accepts([&] {
            const DcpCheckpoint chunks(folder.path(), "model");
            for (const PlannedTensor& tensor : chunks.tensors())
                for (const Block& block : tensor.blocks) chunks.view(block.item);
        });
    }
    EXPECT_GT(refused, metadata.size() / 60);
}

}  // namespace
}  // namespace drover
