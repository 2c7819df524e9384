// The errors for files that cannot be read.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "core/json.h"
#include "core/text_file.h"
#include "data/datasets/file_rows.h"
#include "data/read_all.h"
#include "data/readers/byte_stream.h"
#include "data/readers/csv_reader.h"
#include "data/rows/columns.h"
#include "support/errors.h"
#include "support/golden.h"
#include "support/memory_stream.h"

namespace drover {
namespace {

using test::cause_of;

class ReaderErrors : public ::testing::Test {
  protected:
    std::vector<std::string> rows(const std::string& name, std::string_view bytes,
                                  const ReadOptions& options = {}) {
        test::write_bytes(folder_ / name, bytes);
        return test::read_all(FileRows({folder_ / name}, options));
    }
    /// The error for a file of this name and content, without the folder.
    std::string error(const std::string& name, std::string_view bytes, const ReadOptions& options = {}) {
        std::string text = cause_of([&] { rows(name, bytes, options); });
        const std::string prefix = folder_.path().string() + "/";
        for (std::size_t at = text.find(prefix); at != std::string::npos; at = text.find(prefix))
            text.erase(at, prefix.size());
        return text;
    }

    test::TemporaryFolder folder_;
};

TEST_F(ReaderErrors, Text) {
    EXPECT_EQ(error("a.txt", "one\ntwo\r\nth\xe9ree\n"), "a.txt, line 3: byte 0xe9 is not valid UTF-8.");
    EXPECT_EQ(error("a.txt", ""), "a.txt is empty.");
    EXPECT_EQ(error("a.txt", "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"),
              "a.txt is a Git LFS pointer and not the file itself.");
    EXPECT_EQ(error("a.text", "x\n"), "The name of a.text does not end like a format that can be read.");
    EXPECT_EQ(error("a.txt.gz", "plain\n"), "a.txt.gz is not gzip data, although its name says so.");
    EXPECT_EQ(error("a.parquet.gz", "x"),
              "The name of a.parquet.gz does not end like a format that can be read.");
}

TEST_F(ReaderErrors, AFileThatIsCutWhileItIsRead) {
    const auto file = folder_ / "a.txt";
    test::write_bytes(file, std::string(3 << 20, 'x') + "\n");
    const auto stream = open_byte_stream(file);
    std::string some(1 << 20, ' ');
    ASSERT_EQ(stream->read(some.data(), some.size()), some.size());
    std::filesystem::resize_file(file, 5000);
    EXPECT_EQ(cause_of([&] { stream->read(some.data(), some.size()); }),
              file.string() + " became shorter while it was read: it ends after 1048576 of 3145729 bytes.");
}

TEST_F(ReaderErrors, AFileThatIsCutBetweenTwoPasses) {
    const auto file = folder_ / "a.txt";
    test::write_bytes(file, "one\ntwo\nthree\n");
    const FileRows rows({file}, {});
    EXPECT_EQ(test::read_all(rows).size(), 3);
    std::filesystem::resize_file(file, 8);
    EXPECT_EQ(cause_of([&] { test::read_all(rows); }),
              file.string() + " became shorter while it was read: it ends after 8 of 14 bytes.");
}

TEST_F(ReaderErrors, ColumnsOfWhichNoSingleOneIsTheText) {
    const ReadOptions text{.refuses_conversations = true};
    EXPECT_EQ(
        error("a.jsonl", R"({"prompt": "p", "completion": "c"})", text),
        "a.jsonl has the columns \"prompt\" and \"completion\", and no single one of its columns is the "
        "whole text.");
    EXPECT_EQ(error("a.jsonl", R"({"id": "1", "messages": [{"role": "user", "content": "x"}]})", text),
              "a.jsonl has the column \"messages\", and no single one of its columns is the whole text.");
    EXPECT_EQ(error("a.csv", "instruction,input,output\na,b,c\n", text),
              "a.csv has the columns \"input\" and \"output\", and no single one of its columns is the "
              "whole text.");
    using Rows = std::vector<std::string>;
    EXPECT_EQ(rows("a.csv", "instruction,output,text\na,b,c\n", text), Rows{"c"}) << "there is a text";
    EXPECT_EQ(rows("a.csv", "title,body\na,b\n", text), Rows{"a"}) << "as Hugging Face: the first column";
    EXPECT_EQ(rows("a.csv", "prompt,completion\na,b\n",
                   {.text_column = "completion", .refuses_conversations = true}),
              Rows{"b"})
        << "it was named";
    EXPECT_EQ(rows("a.csv", "prompt,completion\na,b\n"), Rows{"a"}) << "columns are read one by one";
}

TEST(Columns, OneLineSaysWhichAreUsed) {
    EXPECT_EQ(columns_line({"body"}, "body"), "The text is in the column \"body\".");
    EXPECT_EQ(columns_line({"id", "body", "url"}, "body"),
              "The text is in the column \"body\"; not used: id, url.");
    EXPECT_EQ(columns_line({"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m"}, "a"),
              "The text is in the column \"a\"; not used: b, c, d, e, f, g, h, i, j, k and 2 more.");
}

/// Comparing every name with every other would take hours.
TEST_F(ReaderErrors, AHundredThousandColumns) {
    std::string names, cells, keys = "{";
    for (int i = 0; i < 100'000; ++i) {
        names += i == 0 ? "a" : ",a";
        cells += i == 0 ? "x" : ",x";
        keys += fmt::format("{}\"k{}\": \"x\"", i == 0 ? "" : ", ", i);
    }
    EXPECT_EQ(rows("a.csv", names + "\n" + cells + "\n", {.text_column = "a.99999"}).size(), 1u);
    EXPECT_EQ(rows("a.jsonl", keys + "}\n" + keys + "}\n", {.text_column = "k99999"}).size(), 2u);
    EXPECT_EQ(error("a.jsonl", keys + ", \"k7\": \"y\"}\n", {.text_column = "k99999"}),
              "a.jsonl, line 1 has the key \"k7\" twice in one row.");
}

TEST_F(ReaderErrors, MissingFileAndFolder) {
    EXPECT_EQ(cause_of([&] { FileRows({folder_ / "none.txt"}, {}); }),
              "Cannot read " + (folder_ / "none.txt").string() + ": No such file or directory.");
    std::filesystem::create_directory(folder_ / "folder.txt");
    EXPECT_EQ(cause_of([&] { FileRows({folder_ / "folder.txt"}, {}); }),
              "Cannot read " + (folder_ / "folder.txt").string() + ": it is a folder.");
}

TEST_F(ReaderErrors, Json) {
    EXPECT_EQ(error("a.json", "{\"text\":\"a\"}\n{\"text\":\"b\"\n{\"text\":\"c\"}\n"),
              "a.json, line 3 is not valid JSON: a comma or a closing bracket is missing before {.");
    EXPECT_EQ(error("a.json", "{\"text\":\"a\"}\n{\"text\":\"b}\n{\"text\":\"c\"}\n"),
              "a.json, line 2 is not valid JSON: a string holds a raw control character, such as a line "
              "break, or is "
              "never closed.");
    EXPECT_EQ(error("a.json", "{\"text\":\"a\"}\nhello\n"),
              "a.json, line 2 is not valid JSON: a row is not a JSON object, which begins with {.");
    EXPECT_EQ(error("a.json", "{\"text\":\"a\"}\n{\"text\":tru}\n"),
              "a.json, line 2 is not valid JSON: a value is missing or misspelt (character 9 of the row).");
    EXPECT_EQ(error("a.json", "{\"text\":\"a\"}\n{\"text\":7}\n"),
              "a.json, line 2: the value of \"text\" is a number, not a string.");
    EXPECT_EQ(error("a.json", "{\"text\":\"a\"}\n\n{\"text\":null}\n"),
              "a.json, line 3: the row has no text, because its \"text\" is null.");
    EXPECT_EQ(error("a.json", "{\"text\":\"a\"}\n{\"txt\":\"b\"}\n"),
              "a.json, line 2: the row has no text, because its \"text\" is absent.");
    EXPECT_EQ(error("a.json", "{\"text\":\"a\"}\n{\"text\":\"\xff\"}\n"),
              "a.json, line 2: byte 0xff is not valid UTF-8.");
    EXPECT_EQ(error("a.json", "[\"a\",\n\"b\""),
              "a.json, line 2 is not valid JSON: the file ends before its list does.");
    EXPECT_EQ(error("a.json", "{\"text\":\"a\"}\n", {.text_column = "body"}),
              "a.json has no column \"body\"; its columns are: text.");
    EXPECT_EQ(error("a.json", "{\"rows\":[]}", {.json_field = "data"}),
              "a.json, line 1 is not valid JSON: there is no key \"data\".");
    EXPECT_EQ(error("a.json", "[]"), "a.json holds no rows.");
}

TEST_F(ReaderErrors, JsonNestsOnlySoDeep) {
    const auto nested = [](int depth) {
        return "{\"x\":" + std::string(static_cast<std::size_t>(depth), '[') +
               std::string(static_cast<std::size_t>(depth), ']') + ",\"text\":\"a\"}";
    };
    EXPECT_EQ(rows("a.json", nested(400)).size(), 1u);
    EXPECT_NE(error("a.json", nested(100000)).find("nest too deep"), std::string::npos);
}

TEST_F(ReaderErrors, Csv) {
    EXPECT_EQ(error("a.csv", "id,text\n1,a\n2,\"b\n3,c\n"),
              "a.csv, line 3: a quote that opens there is never closed.");
    EXPECT_EQ(error("a.csv", "id,text\n1,a\n2,b,c\n"),
              "a.csv, line 3: the row has 3 cells, but the header has 2.");
    EXPECT_EQ(error("a.csv", "id,text\n1,a,\n"), "a.csv, line 2: the row has 3 cells, but the header has 2.");
    EXPECT_EQ(error("a.csv", "id,text\n\n1,\"x\ny\"\n2,\n"),
              "a.csv, line 5: the row has no text, because its \"text\" is empty.");
    EXPECT_EQ(error("a.csv", "id,text\n1,a\n2,\"NULL\"\n"),
              "a.csv, line 3: the row has no text, because its \"text\" is \"NULL\", which stands for a "
              "missing value.");
    EXPECT_EQ(error("a.csv", "id,text\n1,a\n2\n"),
              "a.csv, line 3: the row has no text, because its \"text\" is absent.");
    EXPECT_EQ(error("a.csv", "id,text\n1,a\n2,\xff\n"), "a.csv, line 3: byte 0xff is not valid UTF-8.");
    EXPECT_EQ(error("a.csv", "id,text\n1,a\n", {.text_column = "body"}),
              "a.csv has no column \"body\"; its columns are: id, text.");
    EXPECT_EQ(error("a.csv", "id,text\n"), "a.csv holds no rows.");
}

TEST_F(ReaderErrors, EveryFileOfASplitNeedsTheColumn) {
    test::write_bytes(folder_ / "1.csv", "id,text\n1,a\n");
    test::write_bytes(folder_ / "2.csv", "id,body\n2,b\n");
    const FileRows rows({folder_ / "1.csv", folder_ / "2.csv"}, {});
    EXPECT_EQ(cause_of([&] { test::read_all(rows); }),
              (folder_ / "2.csv").string() + " has no column \"text\"; its columns are: id, body.");
}

TEST_F(ReaderErrors, TruncatedArchive) {
    const std::string whole = read_text_file(test::golden_path("readers/raw.en.tgz"));
    EXPECT_EQ(error("raw.tgz", whole.substr(0, whole.size() / 2)),
              "The compressed data of raw.tgz stops before its end.");
    EXPECT_NE(
        error("raw.tgz", read_text_file(test::golden_path("readers/cases.json"))).find("is not gzip data"),
        std::string::npos);
}

TEST(CsvCells, NumbersAndTruthValuesStayText) {
    // The datasets library would turn such a column into numbers, which no tokenizer accepts.
    const auto reader =
        make_csv_reader(test::memory_byte_stream("text\n1\n2.50\nTrue\n"), "x.csv", "text", ',');
    RowBatch batch;
    ASSERT_EQ(reader->read(batch, 10), 3U);
    EXPECT_EQ(batch[1], "2.50");
}

TEST(FileRowsTest, BatchesRunAcrossFilesAndSkipFindsTheRightOne) {
    const test::TemporaryFolder folder;
    std::vector<std::filesystem::path> files;
    std::vector<std::string> expected;
    for (int i = 0; i < 5; ++i) {
        files.push_back(folder / (std::to_string(i) + ".txt"));
        std::string content;
        for (int j = 0; j < i; ++j) {  // the first file is empty
            expected.push_back(std::to_string(10 * i + j));
            content += expected.back() + "\n";
        }
        test::write_bytes(files.back(), content);
    }
    const FileRows rows(files, {.keep_linebreaks = false});
    RowBatch batch;
    rows.open(0)->next(batch, 7);
    EXPECT_EQ(batch.size(), 7U);
    for (const bool counted : {false, true}) {
        if (counted) {
            EXPECT_EQ(rows.row_count(), 10);
        }
        for (int first = 0; first <= 11; ++first)
            EXPECT_EQ(test::read_all(rows, first, 3),
                      std::vector(expected.begin() + std::min(first, 10), expected.end()));
    }
}

TEST(FileRowsTest, FingerprintChangesWithContentAndOptions) {
    const test::TemporaryFolder folder;
    test::write_bytes(folder / "a.txt", "one\ntwo\n");
    const std::string first = FileRows({folder / "a.txt"}, {}).fingerprint();
    EXPECT_EQ(first.size(), 32U);
    EXPECT_EQ(FileRows({folder / "a.txt"}, {}).fingerprint(), first);
    EXPECT_NE(FileRows({folder / "a.txt"}, {.keep_linebreaks = false}).fingerprint(), first);
    EXPECT_NE(FileRows({folder / "a.txt", folder / "a.txt"}, {}).fingerprint(), first);
    test::write_bytes(folder / "a.txt", "one\ntwx\n");
    EXPECT_NE(FileRows({folder / "a.txt"}, {}).fingerprint(), first);
}

}  // namespace
}  // namespace drover
