#include <gtest/gtest.h>

#include <fstream>

#include "core/json.h"
#include "core/json_text.h"
#include "data/datasets/file_rows.h"
#include "support/errors.h"
#include "support/golden.h"

namespace drover {
namespace {

/// Rows of several columns, as JSON objects.
class ObjectRows : public ::testing::Test {
  protected:
    std::vector<std::string> read(const std::string& name, std::string_view content,
                                  std::vector<std::string> columns = {"a", "b", "text"}) {
        std::ofstream(folder_ / name) << content;
        return read(folder_ / name, std::move(columns));
    }
    static std::vector<std::string> read(const std::filesystem::path& path,
                                         std::vector<std::string> columns) {
        const FileRows rows({path}, {.row_columns = std::move(columns), .keep_linebreaks = false});
        const auto source = rows.open(0);
        std::vector<std::string> all;
        RowBatch batch;
        for (source->next(batch, 3); batch.size() > 0; source->next(batch, 3))
            for (std::size_t i = 0; i < batch.size(); ++i) all.emplace_back(batch[i]);
        EXPECT_EQ(rows.row_count(), std::ssize(all));
        return all;
    }

    test::TemporaryFolder folder_;
};

using Texts = std::vector<std::string>;

TEST_F(ObjectRows, OfJsonAreItsObjects) {
    EXPECT_EQ(read("a.jsonl", "{\"a\": [1, {\"x\": null}]}\n{\"b\": \"é\"}\n"),
              (Texts{R"({"a": [1, {"x": null}]})", R"({"b": "é"})"}));
    EXPECT_EQ(read("b.json", R"(["one", "two \" quotes"])"),
              (Texts{R"({"text":"one"})", R"({"text":"two \" quotes"})"}));
    test::expect_error([&] { read("c.jsonl", "{\"a\": 1}\n{\"a\": tru}\n"); }, {"c.jsonl, line 2"});
}

TEST_F(ObjectRows, OfCsvAreTextsAndNulls) {
    EXPECT_EQ(read("a.csv", "b,c,a\n1,x,\"say \"\"hi\"\"\n\"\n,y\n"),
              (Texts{R"({"b":"1","a":"say \"hi\"\u000a"})", R"({"b":null,"a":null})"}));
    EXPECT_EQ(read("a.tsv", "a\tb\nNone\t2\n"), (Texts{R"({"a":null,"b":"2"})"}));
}

TEST_F(ObjectRows, OfTextHaveOneColumn) {
    EXPECT_EQ(read("a.txt", "one\ntwo\\\n"), (Texts{R"({"text":"one"})", R"({"text":"two\\"})"}));
}

TEST_F(ObjectRows, OfParquetAndArrowAreNested) {
    const Texts expected = read(test::golden_path("sft/data/messages.jsonl"), {"messages"});
    for (const char* name : {"sft/data/messages.parquet", "sft/data/messages.arrow"}) {
        const Texts rows = read(test::golden_path(name), {"messages", "score", "nothing"});
        ASSERT_EQ(rows.size(), expected.size()) << name;
        for (std::size_t i = 0; i < rows.size(); ++i) {
            const Json row = parse_json(rows[i], name), wanted = parse_json(expected[i], name);
            EXPECT_EQ(row["messages"], wanted["messages"]) << name << " " << i;
            EXPECT_EQ(row["score"], static_cast<double>(i) / 4) << name;
            EXPECT_TRUE(row["score"].is_number_float()) << name;
            EXPECT_EQ(row.size(), 2u) << name;
        }
        const FileRows later({test::golden_path(name)}, {.row_columns = {"score"}});
        RowBatch batch;
        later.open(15)->next(batch, 2);
        ASSERT_EQ(batch.size(), 2u);
        EXPECT_EQ(batch[0], R"({"score":3.75})");
    }
}

TEST_F(ObjectRows, TheColumnsAreInTheFingerprint) {
    std::ofstream(folder_ / "a.csv") << "a,b\n1,2\n";
    const auto fingerprint = [&](std::vector<std::string> columns) {
        return FileRows({folder_ / "a.csv"}, {.row_columns = std::move(columns)}).fingerprint();
    };
    EXPECT_NE(fingerprint({"a"}), fingerprint({"a", "b"}));
    EXPECT_NE(fingerprint({"a"}), fingerprint({}));
}

}  // namespace
}  // namespace drover
