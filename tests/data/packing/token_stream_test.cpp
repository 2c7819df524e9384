#include "data/packing/token_stream.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "core/error.h"
#include "data/fakes.h"
#include "support/errors.h"

namespace drover {
namespace {

using Rows = std::vector<std::vector<TokenId>>;

Rows all_rows(TokenStream stream) {
    Rows rows;
    std::vector<TokenId> row;
    while (stream.next(row)) rows.push_back(row);
    return rows;
}

/// run_clm's two maps, written plainly.
Rows expected_hf(const RowDataset& dataset, std::int64_t block_size, std::int64_t workers) {
    const std::int64_t count = dataset.row_count();
    const std::int64_t shards = std::min(workers, count);
    Rows blocks;
    std::int64_t begin = 0;
    for (std::int64_t shard = 0; shard < shards; ++shard) {
        const std::int64_t end = begin + count / shards + (shard < count % shards ? 1 : 0);
        for (; begin < end; begin = std::min(begin + 1000, end)) {
            std::vector<TokenId> joined;
            RowBatch text;
            dataset.open(begin)->next(text,
                                      static_cast<std::size_t>(std::min<std::int64_t>(1000, end - begin)));
            for (std::size_t i = 0; i < text.size(); ++i)
                test::ByteTokenizer().encode(text[i], SpecialTokens::add, joined);
            for (std::size_t at = 0; at + static_cast<std::size_t>(block_size) <= joined.size();
                 at += static_cast<std::size_t>(block_size))
                blocks.emplace_back(joined.begin() + static_cast<std::ptrdiff_t>(at),
                                    joined.begin() + static_cast<std::ptrdiff_t>(at) + block_size);
        }
    }
    return blocks;
}

TEST(TokenStream, EqualsRunClmForAnyNumberOfThreads) {
    for (const std::int64_t rows : {1, 999, 2503}) {
        const test::MadeDataset dataset = test::uneven_rows(rows);
        for (const std::int64_t workers : {1, 4, 7})
            for (const std::size_t threads : {1, 3, 8})
                ASSERT_EQ(all_rows(TokenStream(dataset, test::byte_tokenizer(),
                                               {.block_size = 128, .workers = workers}, threads)),
                          expected_hf(dataset, 128, workers))
                    << rows << " rows, " << workers << " workers, " << threads << " threads";
    }
}

/// The rest of a batch of 1000 rows, and of a worker's last batch, is dropped. Rows of ten tokens: batches of
/// 1000, 1000 and 503 rows for one worker; 626, 626, 626 and 625 for four.
TEST(TokenStream, WorkersChangeTheBlocks) {
    const auto text = [](std::int64_t row) { return fmt::format("{:09}", row); };
    const test::MadeDataset dataset(2503, text);
    const auto blocks = [&](std::int64_t workers) {
        return all_rows(
            TokenStream(dataset, test::byte_tokenizer(), {.block_size = 128, .workers = workers}, 2));
    };
    const Rows of_one = blocks(1), of_four = blocks(4);
    ASSERT_EQ(of_one.size(), 10000u / 128 + 10000u / 128 + 5030u / 128);
    ASSERT_EQ(of_four.size(), 6260u / 128 + 6260u / 128 + 6260u / 128 + 6250u / 128);
    const auto beginning = [](const std::vector<TokenId>& block) {
        return test::ByteTokenizer().decode(std::span(block).first(10), false);
    };
    EXPECT_EQ(beginning(of_one[6260 / 128]), text(614).substr(3) + text(615).substr(0, 3))
        << "token 6144 is the fifth of row 614";
    EXPECT_EQ(beginning(of_four[6260 / 128]), text(626)) << "the second worker's first row";
}

TEST(TokenStream, LosslessHoldsEveryToken) {
    const test::MadeDataset dataset = test::uneven_rows(1700);
    std::vector<TokenId> whole;
    for (const auto& row : all_rows(
             TokenStream(dataset, test::byte_tokenizer(), {.packing = Packing::none, .block_size = 0}, 2)))
        whole.insert(whole.end(), row.begin(), row.end());
    std::vector<TokenId> joined;
    const Rows blocks = all_rows(TokenStream(
        dataset, test::byte_tokenizer(), {.packing = Packing::lossless, .block_size = 100, .workers = 4}, 2));
    for (const auto& row : blocks) joined.insert(joined.end(), row.begin(), row.end());
    EXPECT_EQ(joined, whole);
    EXPECT_EQ(blocks.size(), (whole.size() + 99) / 100);
}

TEST(TokenStream, NoneGivesOneExamplePerRow) {
    const test::MadeDataset dataset = test::uneven_rows(1234);
    TokenStream stream(dataset, test::byte_tokenizer(), {.packing = Packing::none, .block_size = 0}, 2);
    std::vector<TokenId> row, expected;
    RowBatch text;
    const auto source = dataset.open(0);
    for (std::int64_t i = 0; i < 1234; ++i) {
        ASSERT_TRUE(stream.next(row));
        source->next(text, 1);
        expected.clear();
        test::ByteTokenizer().encode(text[0], SpecialTokens::add, expected);
        ASSERT_EQ(row, expected) << i;
    }
    EXPECT_FALSE(stream.next(row));
    EXPECT_EQ(stream.progress().text_rows, 1234);
    EXPECT_EQ(stream.progress().rows, 1234);
}

TEST(TokenStream, StopsAfterMaxRows) {
    const test::MadeDataset dataset = test::uneven_rows(5000);
    const Rows few =
        all_rows(TokenStream(dataset, test::byte_tokenizer(), {.block_size = 64, .max_rows = 5}, 2));
    Rows first = expected_hf(dataset, 64, 1);
    first.resize(5);
    EXPECT_EQ(few, first);
}

TEST(TokenStream, AnErrorComesAfterTheRowsBeforeIt) {
    const test::MadeDataset dataset(5000, [](std::int64_t row) {
        if (row == 2345) throw Error("Row 2345 is broken.", "Mend it.");
        return std::string("word");
    });
    TokenStream stream(dataset, test::byte_tokenizer(), {.packing = Packing::none, .block_size = 0}, 3);
    std::vector<TokenId> row;
    std::int64_t count = 0;
    test::expect_error(
        [&] {
            while (stream.next(row)) ++count;
        },
        {"Row 2345 is broken."});
    EXPECT_GT(count, 1000);
    EXPECT_LE(count, 2345);
}

TEST(TokenStream, ATokenizerThatFailsIsHeard) {
    struct Failing : test::ByteTokenizer {
        void encode(std::string_view text, SpecialTokens special, std::vector<TokenId>& ids) const override {
            if (text == "800") throw Error("The text 800 is not liked.", "Write another.");
            ByteTokenizer::encode(text, special, ids);
        }
    };
    const test::MadeDataset dataset(100000, [](std::int64_t row) { return std::to_string(row); });
    TokenStream stream(dataset, std::make_shared<Failing>(), {.packing = Packing::none, .block_size = 0}, 4);
    std::vector<TokenId> row;
    test::expect_error(
        [&] {
            while (stream.next(row)) {
            }
        },
        {"The text 800 is not liked."});
    EXPECT_FALSE(stream.next(row)) << "the end after an error";
}

TEST(TokenStream, CanBeAbandonedAtAnyTime) {
    const test::MadeDataset dataset = test::uneven_rows(100000);
    for (const int taken : {0, 1, 100}) {
        TokenStream stream(dataset, test::byte_tokenizer(), {.block_size = 16}, 4);
        std::vector<TokenId> row;
        for (int i = 0; i < taken; ++i) ASSERT_TRUE(stream.next(row));
        EXPECT_LT(stream.progress().text_rows, 100000) << "there is something left to abandon";
    }
}

/// Resident memory of this process.
std::int64_t resident_bytes() {
    std::int64_t size = 0, resident = 0;
    std::ifstream("/proc/self/statm") >> size >> resident;
    return resident * sysconf(_SC_PAGESIZE);
}

TEST(TokenStream, MemoryDoesNotGrowWithTheCorpus) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "sanitizers keep memory of their own";
#endif
    // 128 MB of text, which would give 512 MB of ids; a few rows are long.
    const test::MadeDataset dataset(128'000, [](std::int64_t row) {
        return std::string(row % 1000 == 0 ? 500'500 : 500, static_cast<char>('a' + row % 26));
    });
    TokenStream stream(dataset, test::byte_tokenizer(), {.block_size = 2048}, 2);
    std::vector<TokenId> row;
    const std::int64_t before = resident_bytes();
    std::int64_t largest = 0, count = 0;
    while (stream.next(row))
        if (++count % 64 == 0) largest = std::max(largest, resident_bytes() - before);
    EXPECT_GT(stream.progress().text_bytes, 120'000'000);
    EXPECT_LT(largest, 48'000'000);
}

}  // namespace
}  // namespace drover
