#include "data/packing/token_file.h"

#include <gtest/gtest.h>

#include <fstream>

#include "core/batch.h"
#include "core/content_hash.h"
#include "core/error.h"
#include "core/text_file.h"
#include "data/fakes.h"
#include "data/packing/token_file_writer.h"
#include "support/errors.h"
#include "support/golden.h"

namespace drover {
namespace {

using Rows = std::vector<std::vector<TokenId>>;

class TokenFiles : public ::testing::Test {
  protected:
    std::filesystem::path write(const PackingOptions& options, const Rows& rows,
                                std::int64_t vocabulary = 259) {
        TokenFileWriter writer(path_, test::ByteTokenizer(vocabulary), options);
        for (const auto& row : rows) writer.add(row);
        writer.finish();
        return path_;
    }
    static Rows read(const TokenRows& rows) {
        Rows all(static_cast<std::size_t>(rows.size()));
        for (std::int64_t i = 0; i < rows.size(); ++i) rows.read(i, all[static_cast<std::size_t>(i)]);
        return all;
    }
    /// Expects an Error with `part` from opening and verifying `bytes`.
    void expect_refused(const std::string& bytes, const std::string& part) {
        std::ofstream(path_, std::ios::binary) << bytes;
        test::expect_error([&] { TokenFile(path_).rows().verify(); }, {part, path_.filename().string()});
    }
    /// The same after recomputing both checksums.
    void expect_refused_with_right_checksums(std::string bytes, const std::string& part) {
        const auto put = [&](std::size_t at, std::string_view content) {
            const auto digest = ContentHash().add_bytes(content).digest();
            bytes.replace(at, 16, reinterpret_cast<const char*>(digest.data()), 16);
        };
        put(96, std::string_view(bytes).substr(128));
        put(112, std::string_view(bytes).substr(0, 112));
        expect_refused(bytes, part);
    }

    test::TemporaryFolder folder_;
    std::filesystem::path path_ = folder_ / "some.tokens";
    const Rows blocks_{{1, 2, 3}, {4, 5, 6}, {258, 0, 7}};
    const PackingOptions hf_{.block_size = 3};
};

TEST_F(TokenFiles, BlocksComeBack) {
    const TokenFile file(write({.block_size = 3, .workers = 4}, blocks_));
    const TokenFileHeader& header = file.rows().header();
    EXPECT_EQ(header.token_bytes, 2u);
    EXPECT_EQ(header.rows, 3u);
    EXPECT_EQ(header.tokens, 9u);
    EXPECT_EQ(header.vocabulary, 259u);
    EXPECT_EQ(header.largest_id, 258u);
    EXPECT_EQ(header.workers, 4u);
    EXPECT_EQ(header.tokenizer, test::ByteTokenizer().fingerprint());
    EXPECT_EQ(std::filesystem::file_size(path_), 128u + 24u) << "nine ids of two bytes, rounded up to eight";
    EXPECT_EQ(read(file.rows()), blocks_);
    EXPECT_NO_THROW(file.rows().verify());
}

TEST_F(TokenFiles, LargeVocabulariesTakeFourBytes) {
    const Rows rows{{70000, 1, 2}};
    const TokenFile file(write(hf_, rows, 128256));
    EXPECT_EQ(file.rows().header().token_bytes, 4u);
    EXPECT_EQ(read(file.rows()), rows);
    EXPECT_EQ(TokenFile(write(hf_, blocks_, 65536)).rows().header().token_bytes, 2u);
    EXPECT_EQ(TokenFile(write(hf_, blocks_, 65537)).rows().header().token_bytes, 4u);
}

TEST_F(TokenFiles, TheLastBlockMayBeShortUnderLossless) {
    const Rows rows{{1, 2, 3}, {4}};
    const TokenFile file(write({.packing = Packing::lossless, .block_size = 3}, rows));
    EXPECT_EQ(read(file.rows()), rows);
    EXPECT_EQ(file.rows().lengths(), (std::vector<std::int64_t>{3, 1}));
}

TEST_F(TokenFiles, RowsOfAnyLength) {
    const Rows rows{{1, 2, 3, 4, 5}, {}, {6}, {}};
    const TokenFile file(write({.packing = Packing::none, .block_size = 0}, rows));
    EXPECT_EQ(read(file.rows()), rows);
    EXPECT_EQ(file.rows().lengths(), (std::vector<std::int64_t>{5, 0, 1, 0}));
    EXPECT_NO_THROW(file.rows().verify());
}

TEST_F(TokenFiles, LabelsAndDocumentsComeBack) {
    constexpr TokenId no = no_label;
    const Rows rows{{1, 2, 3, 4, 5}, {6}, {7, 8}}, labels{{no, 2, no, no, 5}, {6}, {no, no}};
    const std::vector<std::vector<std::int32_t>> documents{{2, 1, 2}, {1}, {2}};
    TokenFileWriter writer(path_, test::ByteTokenizer(), {.packing = Packing::none, .block_size = 0}, true);
    for (std::size_t i = 0; i < rows.size(); ++i) writer.add(rows[i], labels[i], documents[i]);
    writer.finish();
    const TokenFile file(path_);
    file.rows().verify();
    EXPECT_TRUE(file.rows().header().has_marks);
    EXPECT_EQ(read(file.rows()), rows);
    EXPECT_EQ(std::filesystem::file_size(path_), 128u + 16 + 3 * 8 + 8 + 8);
    std::vector<TokenId> own_ids, own_labels;
    std::vector<std::int32_t> lengths;
    const auto expect_row = [&](const TrainingRows& all, std::int64_t row, std::size_t expected) {
        all.read(row, own_ids, own_labels);
        all.documents(row, lengths);
        EXPECT_EQ(own_labels, labels[expected]);
        EXPECT_EQ(lengths, documents[expected]);
    };
    for (std::size_t i = 0; i < rows.size(); ++i) expect_row(file.rows(), static_cast<std::int64_t>(i), i);

    // Through everything that rows are passed through.
    const auto shared = std::make_shared<TokenFile>(path_);
    const std::shared_ptr<const TrainingRows> all(shared, &shared->rows());
    expect_row(*joined_training_rows({training_row_range(all, 1, 3), all}), 2, 0);
    const auto cut = cut_training_rows(all, 3);
    cut->documents(0, lengths);
    EXPECT_EQ(lengths, (std::vector<std::int32_t>{2, 1}));
    cut->read(0, own_ids, own_labels);
    EXPECT_EQ(own_labels, (std::vector<TokenId>{no, 2, no}));
}

TEST_F(TokenFiles, FilesWithoutMarksKeepTheirVersion) {
    const std::string bytes = read_text_file(write(hf_, blocks_));
    EXPECT_EQ(bytes[8], 1);
    std::vector<std::int32_t> lengths{7};
    TokenFile(path_).rows().documents(0, lengths);
    EXPECT_TRUE(lengths.empty());
    std::string marked = bytes;
    marked[8] = 2;
    expect_refused_with_right_checksums(marked, "it has labels, but its packing is hf");
    marked[8] = 3;
    expect_refused_with_right_checksums(marked, "version 3, and this program reads versions 1 and 2");
}

TEST_F(TokenFiles, ManyRowsSpillTheirEnds) {
    TokenFileWriter writer(path_, test::ByteTokenizer(), {.packing = Packing::none, .block_size = 0});
    constexpr std::int64_t count = 300'000;  // more than two buffers of row ends
    for (std::int64_t i = 0; i < count; ++i)
        writer.add(std::vector<TokenId>(static_cast<std::size_t>(i % 3), 9));
    writer.finish();
    const TokenFile file(path_);
    file.rows().verify();
    ASSERT_EQ(file.rows().size(), count);
    for (std::int64_t i = 0; i < count; ++i) ASSERT_EQ(file.rows().length(i), i % 3);
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_.path()), {}), 1)
        << "nothing is left over";
}

TEST_F(TokenFiles, NothingIsThereBeforeTheEnd) {
    {
        TokenFileWriter writer(path_, test::ByteTokenizer(), hf_);
        writer.add(blocks_[0]);
        EXPECT_FALSE(std::filesystem::exists(path_));
    }
    EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
}

TEST_F(TokenFiles, RefusesIdsOutsideTheVocabulary) {
    TokenFileWriter writer(path_, test::ByteTokenizer(), hf_);
    test::expect_error([&] { writer.add(std::vector<TokenId>{1, 259, 2}); }, {"token id 259", "has 259 ids"});
    test::expect_error([&] { writer.add(std::vector<TokenId>{1, -1, 2}); }, {"token id -1"});
    const TokenFile file(write(hf_, blocks_));
    EXPECT_NO_THROW(file.rows().check_vocabulary(259));
    test::expect_error([&] { file.rows().check_vocabulary(258); }, {"token id 258", "vocab_size is 258"});
}

TEST_F(TokenFiles, DamageIsFound) {
    const std::string good = read_text_file(write(hf_, blocks_));
    const auto with = [&](std::size_t at, char byte) {
        std::string bad = good;
        bad[at] = static_cast<char>(bad[at] ^ byte);
        return bad;
    };
    expect_refused("", "not a token file");
    expect_refused("something else, long enough to hold a header" + std::string(200, ' '),
                   "not a token file");
    expect_refused(good.substr(0, 100), "inside its header");
    expect_refused(good.substr(0, good.size() - 1), "cut off after 151 of 152 bytes");
    expect_refused(good.substr(0, 128), "cut off after 128 of 152 bytes");
    expect_refused(good + "x", "1 bytes after its end");
    expect_refused(with(8, 2), "version 3");
    for (const std::size_t at : {12, 16, 40, 70, 100, 127})
        expect_refused(with(at, 1), "checksum of its header");
    for (const std::size_t at : {128, 140, 151}) expect_refused(with(at, 1), "checksum of the data");
    expect_refused_with_right_checksums(with(12, 1), "its tokens have 3 bytes");
    expect_refused_with_right_checksums(with(24, 1), "do not make 2 blocks");
    expect_refused_with_right_checksums(with(39, 1), "impossibly large");
    expect_refused_with_right_checksums(with(40, 1), "holds token id 258, but its vocabulary has 258");
    expect_refused_with_right_checksums(with(56, 4), "packing is number 5");
    expect_refused_with_right_checksums(with(56, 2), "packing is none");
    expect_refused_with_right_checksums(with(64, '\x80'), "hash is not text");
    expect_refused_with_right_checksums(with(129, 2), "token id 513 at position 0");
}

TEST_F(TokenFiles, WrongRowEndsAreFound) {
    const std::string good =
        read_text_file(write({.packing = Packing::none, .block_size = 0}, {{1, 2}, {3}, {4}}));
    std::string bad = good;
    bad[128 + 8 + 8] = 1;  // row 1 ends before it begins
    expect_refused_with_right_checksums(bad, "row 1 is said to be tokens 2 to 1");
    bad = good;
    bad[128 + 8 + 16] = 9;
    expect_refused_with_right_checksums(bad, "tokens 3 to 9 of 4");
    bad = good;
    bad[128 + 8 + 16] = 3;
    expect_refused_with_right_checksums(bad, "rows end at token 3 of 4");
}

TEST_F(TokenFiles, MissingFilesAndFolders) {
    test::expect_error([&] { TokenFile(folder_ / "none"); }, {(folder_ / "none").string()});
    test::expect_error([&] { TokenFile(folder_.path()); }, {folder_.path().string()});
    test::expect_error([&] { TokenFileWriter(folder_ / "none/x", test::ByteTokenizer(), hf_); },
                       {(folder_ / "none/x").string()});
}

}  // namespace
}  // namespace drover
