#include "data/datasets/token_datasets.h"

#include <gtest/gtest.h>

#include "core/json.h"
#include "core/json_text.h"
#include "core/program_module.h"
#include "core/text_file.h"
#include "data/datasets/arrow_tokens.h"
#include "data/datasets/resolve_dataset.h"
#include "data/fakes.h"
#include "data/packing/token_file_writer.h"
#include "data/packing/token_stream.h"
#include "data/read_all.h"
#include "data/readers/arrow_library.h"
#include "support/errors.h"
#include "support/golden.h"

namespace drover {
namespace {

using Ids = std::vector<TokenId>;
using Rows = std::vector<Ids>;

class TokenDatasets : public ::testing::Test {
  protected:
    std::filesystem::path write(const std::string& name, const PackingOptions& options, const Rows& rows,
                                std::int64_t vocabulary = 259) {
        TokenFileWriter writer(folder_ / name, test::ByteTokenizer(vocabulary), options);
        for (const Ids& row : rows) writer.add(row);
        writer.finish();
        return folder_ / name;
    }
    SharedRows open(const std::vector<std::filesystem::path>& files) { return open_token_files(files, {}); }
    static Rows all(const TrainingRows& rows) {
        Rows read(static_cast<std::size_t>(rows.size()));
        Ids labels;
        for (std::int64_t i = 0; i < rows.size(); ++i)
            rows.read(i, read[static_cast<std::size_t>(i)], labels);
        return read;
    }

    test::TemporaryFolder folder_;
    const PackingOptions blocks_{.block_size = 2}, texts_{.packing = Packing::none, .block_size = 0};
};

TEST_F(TokenDatasets, FilesFollowEachOther) {
    const auto first = write("a.tokens", blocks_, {{1, 2}, {3, 4}}),
               second = write("b.tokens", blocks_, {{5, 6}});
    const SharedRows rows = open({first, second});
    EXPECT_EQ(all(*rows->token_rows()), (Rows{{1, 2}, {3, 4}, {5, 6}}));
    EXPECT_EQ(all(*row_range(rows, 1, 3)->token_rows()), (Rows{{3, 4}, {5, 6}}));
    const TrainAndValidation split = split_by_percent(rows, 34);
    EXPECT_EQ(all(*split.validation->token_rows()), (Rows{{1, 2}}));
    EXPECT_EQ(all(*split.train->token_rows()), (Rows{{3, 4}, {5, 6}}));
    EXPECT_TRUE(rows->token_form()->rows_are_final);
    EXPECT_EQ(rows->token_form()->largest_id, 6);
    EXPECT_NE(rows->fingerprint(), open({first})->fingerprint());
    EXPECT_EQ(open({first})->fingerprint(),
              open({write("copy.tokens", blocks_, {{1, 2}, {3, 4}})})->fingerprint());
}

TEST_F(TokenDatasets, FilesThatAreNotAlikeDoNotMix) {
    const auto plain = write("a.tokens", blocks_, {{1, 2}});
    for (const auto& other : {std::pair(write("long.tokens", {.block_size = 3}, {{1, 2, 3}}), "block sizes"),
                              std::pair(write("texts.tokens", texts_, {{1, 2}}), "packings"),
                              std::pair(write("other.tokens", blocks_, {{1, 2}}, 300), "tokenizers")})
        EXPECT_NE(test::cause_of([&] {
                      open({plain, other.first});
                  }).find(std::string("were made with different ") + other.second + "."),
                  std::string::npos)
            << other.second;
    const auto workers = write("workers.tokens", {.block_size = 2, .workers = 3}, {{3, 4}});
    EXPECT_EQ(all(*open({plain, workers})->token_rows()), (Rows{{1, 2}, {3, 4}}));
}

/// Packing a file of rows gives the same as packing the text.
TEST_F(TokenDatasets, RowsOfTextArePackedAsTextIs) {
    const test::MadeDataset text(2500, [](std::int64_t row) { return "row " + std::to_string(row * row); });
    const auto tokenizer = test::byte_tokenizer();
    Rows rows;
    for (const std::string& row : test::read_all(text)) {
        rows.emplace_back();
        tokenizer->encode(row, SpecialTokens::add, rows.back());
    }
    const SharedRows ids = open({write("texts.tokens", texts_, rows)});
    EXPECT_FALSE(ids->token_form()->rows_are_final);
    for (const PackingOptions& options :
         {PackingOptions{.block_size = 100}, PackingOptions{.block_size = 100, .workers = 3},
          PackingOptions{.packing = Packing::lossless, .block_size = 77},
          PackingOptions{.packing = Packing::none, .block_size = 0},
          PackingOptions{.packing = Packing::none, .block_size = 5}}) {
        TokenStream expected(text, tokenizer, options, 2), found(*ids, tokenizer, options, 2);
        Ids a, b;
        while (expected.next(a)) {
            ASSERT_TRUE(found.next(b));
            ASSERT_EQ(a, b);
            if (options.packing == Packing::none && options.block_size > 0) {
                ASSERT_LE(b.size(), 5u);
            }
        }
        EXPECT_FALSE(found.next(b));
        EXPECT_EQ(found.progress().dropped, expected.progress().dropped);
    }
}

TEST_F(TokenDatasets, DamagedDataIsFoundWhenAFileIsFirstMet) {
    const auto file = write("a.tokens", blocks_, {{1, 2}, {3, 4}});
    std::string bytes = read_text_file(file);
    bytes[TokenFileHeader::bytes] ^= 1;
    test::write_bytes(file, bytes);
    EXPECT_NE(test::cause_of([&] { open({file}); }).find("the checksum of the data is wrong"),
              std::string::npos);
}

TEST_F(TokenDatasets, ArrowFilesHaveTheirLabels) {
    if (load_module("arrow").handle == nullptr) GTEST_SKIP() << "drover_arrow.so was not built";
    const Json blocks = read_json_file(test::golden_path("readers/arrow.json"))["tokens"]["blocks"];
    const auto resolved = resolve_dataset({.dataset_name = test::golden_path("readers/tokens").string()});
    for (const std::string notes : {"", "notes", "notes"}) {
        const SharedRows rows = open_arrow_tokens(resolved.splits.front().files,
                                                  notes.empty() ? std::filesystem::path() : folder_ / notes);
        Ids ids, labels;
        TokenId largest = 0;
        for (std::int64_t i = rows->row_count(); i-- > 0;) {
            rows->token_rows()->read(i, ids, labels);
            EXPECT_EQ(ids, blocks[static_cast<std::size_t>(i)].get<Ids>());
            largest = std::max(largest, *std::max_element(ids.begin(), ids.end()));
            ids.back() = -100;
            EXPECT_EQ(labels, ids);
        }
        EXPECT_EQ(rows->token_form()->largest_id, largest);
        EXPECT_EQ(rows->token_rows()->longest(), static_cast<std::int64_t>(ids.size()));
        EXPECT_EQ(rows->token_rows()->length(0), static_cast<std::int64_t>(ids.size()));
    }
}

TEST_F(TokenDatasets, ArrowFilesWithoutRowsDoNotCount) {
    if (load_module("arrow").handle == nullptr) GTEST_SKIP() << "drover_arrow.so was not built";
    const auto made = [&](const std::string& name, bool empty) {
        const Ids ids{1, 2, 3};
        int left = empty ? 0 : 2;
        write_arrow_token_dataset(folder_ / name, [&]() -> std::span<const std::int32_t> {
            return left-- > 0 ? std::span<const std::int32_t>(ids) : std::span<const std::int32_t>();
        });
        return resolve_dataset({.dataset_name = (folder_ / name).string()}).splits.front().files.front();
    };
    const auto full = made("full", false), empty = made("empty", true);
    for (const auto& files : {std::vector{empty, full}, std::vector{full, empty}}) {
        const SharedRows rows = open_arrow_tokens(files, {});
        EXPECT_EQ(rows->token_form()->block_size, 3);
        EXPECT_EQ(rows->token_form()->packing, Packing::hf);
        EXPECT_EQ(rows->row_count(), 2);
    }
}

TEST_F(TokenDatasets, ArrowRowsOfDifferentLengths) {
    if (load_module("arrow").handle == nullptr) GTEST_SKIP() << "drover_arrow.so was not built";
    const Rows given{{1, 2, 3}, {4, 5}, {6, 7, 8, 9}};
    std::size_t next = 0;
    write_arrow_token_dataset(folder_ / "rows", [&]() -> std::span<const std::int32_t> {
        return next < given.size() ? std::span<const std::int32_t>(given[next++])
                                   : std::span<const std::int32_t>();
    });
    const TrainAndValidation splits = load_train_and_validation(
        {.train_files = {(folder_ / "rows").string()}}, {.validation_percent = 0, .do_train = true});
    EXPECT_EQ(all(*splits.train->token_rows()), given);
    EXPECT_EQ(splits.train->token_rows()->lengths(), (std::vector<std::int64_t>{3, 2, 4}));
    EXPECT_EQ(splits.train->token_rows()->longest(), 4);
    EXPECT_EQ(splits.train->token_form()->packing, Packing::none);

    const auto cut = cut_training_rows(splits.train->token_rows(), 3);
    EXPECT_EQ(all(*cut), (Rows{{1, 2, 3}, {4, 5}, {6, 7, 8}}));
    EXPECT_EQ(cut->lengths(), (std::vector<std::int64_t>{3, 2, 3}));
    EXPECT_EQ(cut->longest(), 3);
    Ids ids, labels;
    cut->read(2, ids, labels);
    EXPECT_EQ(labels, ids);
    test::expect_error<UsageError>(
        [&] {
            load_train_and_validation({.train_files = {(folder_ / "rows").string()}},
                                      {.validation_percent = 0, .streaming = true, .do_train = true});
        },
        {(folder_ / "rows").string(), "--streaming"});
}

}  // namespace
}  // namespace drover
