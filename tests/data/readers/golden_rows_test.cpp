// Rows of files and folders compared with what the datasets library reads from them.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/json.h"
#include "core/json_text.h"
#include "data/datasets/file_rows.h"
#include "data/datasets/resolve_dataset.h"
#include "data/read_all.h"
#include "support/errors.h"
#include "support/golden.h"
#include "text/utf8.h"

namespace drover {
namespace {

using test::cause_of;
using test::read_all;

/// The bytes whose values are the code points of `text`.
std::string latin1_bytes(std::string_view text) {
    std::string bytes;
    while (!text.empty()) {
        const Utf8Char c = decode_utf8(text);
        bytes.push_back(static_cast<char>(c.code_point));
        text.remove_prefix(c.length);
    }
    return bytes;
}

void expect_rows(const FileRows& rows, const std::vector<std::string>& expected) {
    for (const std::size_t at_once : {1, 2, 1000}) EXPECT_EQ(read_all(rows, 0, at_once), expected);
    EXPECT_EQ(rows.row_count(), static_cast<std::int64_t>(expected.size()));
    for (std::size_t first = 0; first <= expected.size() + 1; ++first)
        EXPECT_EQ(
            read_all(rows, static_cast<std::int64_t>(first)),
            std::vector(expected.begin() + static_cast<std::ptrdiff_t>(std::min(first, expected.size())),
                        expected.end()));
}

TEST(GoldenRows, FilesReadAsTheDatasetsLibraryReadsThem) {
    const test::TemporaryFolder folder;
    int good = 0, nulls = 0, bad = 0;
    for (const Json& item : read_json_file(test::golden_path("readers/cases.json"))) {
        const std::string name = item["name"];
        SCOPED_TRACE(name);
        const auto path = folder / name;
        test::write_bytes(path, latin1_bytes(item["bytes"].get<std::string>()));
        ReadOptions options;
        options.keep_linebreaks = item.value("keep_linebreaks", true);
        options.json_field = item.value("field", "");
        if (item.contains("error")) {
            const std::string error = cause_of([&] { read_all(FileRows({path}, options)); });
            EXPECT_NE(error.find(name), std::string::npos) << error;
            ++bad;
            continue;
        }
        std::vector<std::string> expected;
        bool has_null = false;
        for (const Json& row : item["rows"]) {
            has_null = has_null || row.is_null();
            if (!has_null) expected.push_back(row);
        }
        if (has_null) {
            const std::string error = cause_of([&] { read_all(FileRows({path}, options)); });
            EXPECT_NE(error.find("has no text"), std::string::npos) << error;
            EXPECT_NE(error.find(name + ", line "), std::string::npos) << error;
            ++nulls;
            continue;
        }
        const FileRows rows({path}, options);
        EXPECT_EQ(rows.column_names(), item["columns"].get<std::vector<std::string>>());
        EXPECT_EQ(rows.text_column(), item["column"]);
        expect_rows(rows, expected);
        ++good;
    }
    EXPECT_GE(good, 60);
    EXPECT_GE(nulls, 5);
    EXPECT_GE(bad, 30);
}

TEST(GoldenRows, FoldersResolveAsTheDatasetsLibraryResolvesThem) {
    int good = 0, bad = 0;
    for (const Json& item : read_json_file(test::golden_path("readers/folders.json"))) {
        SCOPED_TRACE(item["name"].get<std::string>());
        const test::TemporaryFolder folder;
        for (const auto& [path, content] : item["files"].items())
            test::write_bytes(folder / path, content.get<std::string>());
        DatasetRequest request{.dataset_name = folder.path().string()};
        if (item["config"].is_string()) request.dataset_config_name = item["config"];
        if (item.contains("error")) {
            test::expect_error([&] { resolve_dataset(request); }, {folder.path().string()});
            ++bad;
            continue;
        }
        const ResolvedDataset dataset = resolve_dataset(request);
        ASSERT_EQ(dataset.splits.size(), item["splits"].size());
        std::size_t i = 0;
        for (const auto& [name, rows] : item["splits"].items()) {
            const DatasetSplit& split = dataset.splits[i++];
            EXPECT_EQ(split.name, name);
            EXPECT_EQ(read_all(FileRows(split.files, split.options)), rows.get<std::vector<std::string>>());
        }
        ++good;
    }
    EXPECT_GE(good, 12);
    EXPECT_GE(bad, 4);
}

TEST(GoldenRows, WikicorpusReadsAsItsLoadingScriptReadsIt) {
    const Json expected = read_json_file(test::golden_path("readers/arrow.json"))["raw.en.tgz"]["rows"];
    const FileRows rows({test::golden_path("readers/raw.en.tgz")}, {});
    EXPECT_EQ(rows.column_names(), (std::vector<std::string>{"id", "title", "text"}));
    EXPECT_EQ(rows.text_column(), "text");
    expect_rows(rows, expected.get<std::vector<std::string>>());
    ReadOptions titles;
    titles.text_column = "title";
    EXPECT_EQ(read_all(FileRows({test::golden_path("readers/raw.en.tgz")}, titles)),
              (std::vector<std::string>{"Anarchism", "Empty &quot;one&quot;", "", "Last"}));
    // By the names of the dataset and its config, from a folder that holds the archive.
    const DatasetRequest request{.dataset_name = test::golden_path("readers").string(),
                                 .dataset_config_name = "raw_en"};
    const ResolvedDataset dataset = resolve_dataset(request);
    ASSERT_EQ(dataset.splits.size(), 1U);
    EXPECT_EQ(read_all(FileRows(dataset.splits[0].files, dataset.splits[0].options)).size(), expected.size());
}

}  // namespace
}  // namespace drover
