#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "core/json.h"
#include "core/json_text.h"
#include "core/program_module.h"
#include "core/text_file.h"
#include "data/datasets/arrow_tokens.h"
#include "data/datasets/dataset_folder.h"
#include "data/datasets/file_rows.h"
#include "data/datasets/resolve_dataset.h"
#include "data/read_all.h"
#include "support/errors.h"
#include "support/golden.h"

namespace drover {
namespace {

using test::cause_of;
using test::read_all;

class Arrow : public ::testing::Test {
  protected:
    void SetUp() override {
        if (load_module("arrow").handle == nullptr)
            GTEST_SKIP() << "drover_arrow.so was not built (scripts/fetch_arrow.sh fetches Arrow C++)";
    }
};

std::vector<std::string> split_rows(const ResolvedDataset& dataset, std::string_view split) {
    return read_all(FileRows(dataset.find(split)->files, dataset.find(split)->options));
}

TEST_F(Arrow, ParquetAndIpcFilesGiveTheRowsThatWereWritten) {
    const Json cases = read_json_file(test::golden_path("readers/arrow.json"));
    for (const std::string name :
         {"snappy.parquet", "zstd_large.parquet", "dictionary.parquet", "file.arrow"}) {
        SCOPED_TRACE(name);
        const auto expected = cases[name]["rows"].get<std::vector<std::string>>();
        const FileRows rows({test::golden_path("readers/" + name)}, {});
        EXPECT_EQ(rows.column_names(), cases[name]["columns"].get<std::vector<std::string>>());
        EXPECT_EQ(rows.text_column(), "text");
        EXPECT_EQ(rows.row_count(), static_cast<std::int64_t>(expected.size()));
        for (const std::size_t at_once : {1, 7, 1000}) EXPECT_EQ(read_all(rows, 0, at_once), expected);
        for (const std::int64_t first : {1, 14, 15, 16, 31, 39, 40, 50})
            EXPECT_EQ(read_all(rows, first),
                      std::vector(expected.begin() + std::min<std::ptrdiff_t>(first, 40), expected.end()));
    }
}

TEST_F(Arrow, FoldersOfSaveToDiskAreDatasets) {
    const auto expected = read_json_file(test::golden_path("readers/arrow.json"))["saved"]["rows"]
                              .get<std::vector<std::string>>();
    const auto saved = resolve_dataset({.dataset_name = test::golden_path("readers/saved").string()});
    ASSERT_EQ(saved.splits.size(), 1U);
    EXPECT_EQ(saved.splits[0].files.size(), 2U);
    EXPECT_EQ(split_rows(saved, "train"), expected);
    const auto both = resolve_dataset({.dataset_name = test::golden_path("readers/saved_dict").string()});
    EXPECT_EQ(split_rows(both, "train"), std::vector(expected.begin(), expected.begin() + 30));
    EXPECT_EQ(split_rows(both, "validation"), std::vector(expected.begin() + 30, expected.end()));
}

TEST_F(Arrow, NullsAndColumnsWithoutTextAreErrors) {
    const auto read = [](const char* name, std::string column = {}) {
        return cause_of([&] {
            ReadOptions options;
            options.text_column = std::move(column);
            read_all(FileRows({test::golden_path(std::string("readers/") + name)}, options));
        });
    };
    const auto says = [](const std::string& error, std::string_view part) {
        EXPECT_NE(error.find(part), std::string::npos) << error;
    };
    says(read("nulls.parquet"), "nulls.parquet, row 1: the row has no text, because its \"text\" is null.");
    says(read("numbers.parquet"), "column \"text\" holds int64, not strings");
    says(read("snappy.parquet", "meta"), "column \"meta\" holds struct<a: list<");
    says(read("snappy.parquet", "body"), "has no column \"body\"; its columns are: meta, text.");
}

TEST_F(Arrow, DamagedFilesAreErrors) {
    const test::TemporaryFolder folder;
    for (const std::string name : {"snappy.parquet", "file.arrow", "saved/data-00000-of-00002.arrow"}) {
        const std::string whole = read_text_file(test::golden_path("readers/" + name));
        for (const std::size_t size : {std::size_t{1}, std::size_t{9}, whole.size() / 2, whole.size() - 8}) {
            const auto path = folder / ("cut" + std::filesystem::path(name).extension().string());
            test::write_bytes(path, whole.substr(0, size));
            const std::string error = cause_of([&] { read_all(FileRows({path}, {})); });
            EXPECT_NE(error.find(path.string()), std::string::npos) << name << " " << size << ": " << error;
        }
    }
}

TEST_F(Arrow, TokenBlocksOfTheDatasetsLibraryReadBack) {
    const Json blocks = read_json_file(test::golden_path("readers/arrow.json"))["tokens"]["blocks"];
    ArrowTokenDataset tokens(read_dataset_folder(test::golden_path("readers/tokens"), "").front().files);
    ASSERT_EQ(tokens.size(), static_cast<std::int64_t>(blocks.size()));
    ArrowTokenDataset::Block block;
    for (const std::size_t i : {4, 0, 3, 1, 2}) {
        tokens.read(static_cast<std::int64_t>(i), block);
        EXPECT_EQ(block.ids, blocks[i].get<std::vector<std::int32_t>>());
        std::vector<std::int32_t> labels = blocks[i].get<std::vector<std::int32_t>>();
        labels.back() = -100;
        EXPECT_EQ(block.labels, labels);
    }
}

TEST_F(Arrow, TokenBlocksAreWrittenAsTheDatasetsLibraryWritesThem) {
    const test::TemporaryFolder folder;
    const auto block_of = [](std::int32_t i) {
        std::vector<std::int32_t> ids;
        for (std::int32_t j = 0; j < 6; ++j) ids.push_back(100000 * j + i);
        return ids;
    };
    constexpr std::int32_t count = 2500;
    std::int32_t given = 0;
    std::vector<std::int32_t> ids;
    const NextBlock next = [&]() -> std::span<const std::int32_t> {
        if (given == count) return {};
        ids = block_of(given++);
        return ids;
    };
    EXPECT_EQ(write_arrow_token_dataset(folder / "blocks", next, "train", 100000), count);

    ArrowTokenDataset tokens(read_dataset_folder(folder / "blocks", "").front().files);
    ASSERT_EQ(tokens.size(), count);
    ArrowTokenDataset::Block block;
    for (std::int32_t i = 0; i < count; ++i) {
        tokens.read(i, block);
        ASSERT_EQ(block.ids, block_of(i)) << i;
        ASSERT_EQ(block.labels, block.ids) << i;
    }
    const Json state = read_json_file(folder / "blocks/state.json");
    EXPECT_EQ(state["_data_files"].size(), 2U);
    EXPECT_EQ(state["_data_files"][0]["filename"], "data-00000-of-00002.arrow");
    EXPECT_EQ(state["_split"], "train");
    // The same description, key for key, as in the library's own folder.
    EXPECT_EQ(read_json_file(folder / "blocks/dataset_info.json"),
              read_json_file(test::golden_path("readers/tokens/dataset_info.json")));
    given = 0;
    EXPECT_NE(cause_of([&] { write_arrow_token_dataset(folder / "blocks", next); }).find("is not empty"),
              std::string::npos);
}

TEST(ArrowDeathTest, OpeningAParquetFileSaysWhatIsMissing) {
    // In a separate process: a module stays once it is loaded.
    EXPECT_EXIT(
        {
            setenv("DROVER_ARROW_MODULE", "/nowhere/drover_arrow.so", 1);
            const std::string error =
                cause_of([&] { FileRows({test::golden_path("readers/snappy.parquet")}, {}); });
            std::fputs(error.c_str(), stderr);
            std::exit(0);
        },
        ::testing::ExitedWithCode(0),
        "snappy.parquet needs Arrow C\\+\\+: the module drover_arrow.so was not found \\(searched: "
        "/nowhere/drover_arrow.so\\)\\.");
}

}  // namespace
}  // namespace drover
