// Readers must not depend on where one block of bytes ends and the next begins.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "data/read_all.h"
#include "data/readers/csv_reader.h"
#include "data/readers/json_reader.h"
#include "data/readers/text_reader.h"
#include "support/errors.h"
#include "support/memory_stream.h"

namespace drover {
namespace {

/// Gives at most `step` bytes at a time.
class SlowStream : public ByteStream {
  public:
    SlowStream(std::string_view bytes, std::size_t step)
        : inner_(test::memory_byte_stream(bytes)), step_(step) {}
    std::size_t read(char* into, std::size_t size) override {
        return inner_->read(into, std::min(size, step_));
    }

  private:
    std::unique_ptr<ByteStream> inner_;
    std::size_t step_;
};

std::vector<std::string> rows_of(FileReader& reader, std::size_t at_once) {
    std::vector<std::string> rows;
    RowBatch batch;
    while (reader.read(batch, at_once) > 0) {
        for (std::size_t i = 0; i < batch.size(); ++i) rows.emplace_back(batch[i]);
        batch.clear();
    }
    return rows;
}

/// Expects the same rows for every block size, and the same number of rows when they are skipped.
template <class Make>
void expect_same_rows(const std::string& bytes, Make&& make) {
    const auto expected = rows_of(*make(test::memory_byte_stream(bytes)), 1000);
    for (const std::size_t step : {1, 2, 3, 5, 64}) {
        EXPECT_EQ(rows_of(*make(std::make_unique<SlowStream>(bytes, step)), 3), expected) << step;
        EXPECT_EQ(make(std::make_unique<SlowStream>(bytes, step))->skip(1'000'000),
                  static_cast<std::int64_t>(expected.size()));
    }
}

TEST(ReaderBlocks, TextWithEveryKindOfLineBreak) {
    std::mt19937 random(1);
    const std::vector<std::string> pieces{"a", "bc", "\n", "\r", "\r\n", "é", "日本", "😀", " ", "\n\n"};
    for (int round = 0; round < 40; ++round) {
        std::string bytes;
        for (int i = 0; i < 60; ++i) bytes += pieces[random() % pieces.size()];
        for (const bool keep : {true, false})
            expect_same_rows(bytes,
                             [&](auto stream) { return make_text_reader(std::move(stream), "x.txt", keep); });
    }
}

TEST(ReaderBlocks, LinesLongerThanABlock) {
    std::string bytes;
    std::vector<std::string> expected;
    for (const std::size_t size :
         {std::size_t{3} << 20, std::size_t{0}, (std::size_t{1} << 20) - 1, std::size_t{5}}) {
        expected.emplace_back(size, static_cast<char>('a' + expected.size()));
        bytes += expected.back() + "\r\n";
    }
    EXPECT_EQ(rows_of(*make_text_reader(test::memory_byte_stream(bytes), "x.txt", false), 10), expected);
}

TEST(ReaderBlocks, InvalidUtf8IsFoundInEveryBlockAndLine) {
    for (const std::size_t before :
         {std::size_t{0}, std::size_t{7}, (std::size_t{1} << 20) - 2, std::size_t{3} << 20}) {
        std::string bytes;
        std::int64_t line = 1;
        while (bytes.size() < before) {
            bytes += "abcdef\n";
            ++line;
        }
        bytes += "x\xffy\n";
        const std::string error = test::cause_of([&] {
            const auto reader = make_text_reader(test::memory_byte_stream(bytes), "x.txt", true);
            rows_of(*reader, 1000);
        });
        EXPECT_EQ(error, "x.txt, line " + std::to_string(line) + ": byte 0xff is not valid UTF-8.");
    }
}

TEST(ReaderBlocks, JsonLinesAndLists) {
    std::mt19937 random(2);
    const std::vector<std::string> rows{R"({"text":"a\n\"b\"","x":[{"y":"}"},-1.5e3]})",
                                        R"({"x":null,"text":"é😀\u00e9"})", R"({ "text" : "" })"};
    for (int round = 0; round < 20; ++round) {
        std::string lines, list = " [";
        for (int i = 0; i < 12; ++i) {
            const std::string& row = rows[random() % rows.size()];
            lines += row + (random() % 2 == 0 ? "\n" : "\r\n\n");
            list += (i == 0 ? "" : " ,\n") + row;
        }
        for (const std::string& bytes : {lines, list + "] "})
            expect_same_rows(
                bytes, [](auto stream) { return make_json_reader(std::move(stream), "x.json", "text", ""); });
    }
}

TEST(ReaderBlocks, CsvWithQuotes) {
    std::mt19937 random(3);
    const std::vector<std::string> cells{"a", "\"b,c\"", "\"d\r\ne\"", "f\"g", "\"h\"\"i\"", " é ", "\"\r\""};
    const std::vector<std::string> breaks{"\n", "\r\n", "\r", "\n\n", "\n \t\n"};
    for (int round = 0; round < 30; ++round) {
        std::string bytes = "id,text\n";
        for (int i = 0; i < 15; ++i)
            bytes += cells[random() % cells.size()] + "," + cells[random() % cells.size()] +
                     breaks[random() % breaks.size()];
        expect_same_rows(
            bytes, [](auto stream) { return make_csv_reader(std::move(stream), "x.csv", "text", ','); });
    }
}

}  // namespace
}  // namespace drover
