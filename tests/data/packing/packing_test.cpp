#include "data/packing/packing.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "data/packing/block_size.h"
#include "support/errors.h"

namespace drover {
namespace {

using Rows = std::vector<std::vector<TokenId>>;

std::vector<std::int64_t> group_sizes(std::int64_t rows, std::int64_t workers) {
    const Groups groups(rows, workers);
    std::vector<std::int64_t> sizes;
    for (std::int64_t row = 0; row < rows; row += sizes.back())
        sizes.push_back(std::min(groups.left_in_group(row), rows - row));
    return sizes;
}

TEST(Groups, AThousandRowsEach) {
    EXPECT_EQ(group_sizes(2500, 1), (std::vector<std::int64_t>{1000, 1000, 500}));
    EXPECT_EQ(group_sizes(0, 1), std::vector<std::int64_t>{});
    EXPECT_EQ(Groups(0, 1).left_in_group(1500), 500);
}

TEST(Groups, StartAnewInEveryShard) {
    EXPECT_EQ(group_sizes(4402, 4), (std::vector<std::int64_t>{1000, 101, 1000, 101, 1000, 100, 1000, 100}));
    EXPECT_EQ(group_sizes(10, 4), (std::vector<std::int64_t>{3, 3, 2, 2}));
    EXPECT_EQ(group_sizes(3, 8), (std::vector<std::int64_t>{1, 1, 1})) << "never more shards than rows";
    EXPECT_EQ(group_sizes(0, 8), std::vector<std::int64_t>{});
}

TEST(Groups, TellsWhatIsLeftFromTheMiddleOfAGroup) {
    const Groups groups(4402, 4);
    EXPECT_EQ(groups.left_in_group(999), 1);
    EXPECT_EQ(groups.left_in_group(1050), 51);
    EXPECT_EQ(groups.left_in_group(2202), 1000);
    EXPECT_EQ(groups.left_in_group(4401), 1);
}

struct Packed {
    Rows rows;
    std::int64_t dropped;
};

Packed pack(Packing packing, std::int64_t block_size, const std::vector<Rows>& groups) {
    Packed packed;
    Packer packer(packing, block_size,
                  [&](std::span<const TokenId> row) { packed.rows.emplace_back(row.begin(), row.end()); });
    for (const Rows& group : groups) {
        for (const auto& row : group) packer.add(row);
        packer.end_group();
    }
    packer.finish();
    packed.dropped = packer.dropped();
    return packed;
}

const std::vector<Rows> two_groups{{{1, 2}, {}, {3, 4, 5}}, {{6}, {7, 8, 9, 10, 11, 12, 13}}};

TEST(Packer, HfDropsTheRestOfEveryGroup) {
    const Packed packed = pack(Packing::hf, 3, two_groups);
    EXPECT_EQ(packed.rows, (Rows{{1, 2, 3}, {6, 7, 8}, {9, 10, 11}}));
    EXPECT_EQ(packed.dropped, 4);
}

TEST(Packer, AGroupShorterThanABlockGivesNothing) {
    const Packed packed = pack(Packing::hf, 9, two_groups);
    EXPECT_EQ(packed.rows, Rows{});
    EXPECT_EQ(packed.dropped, 13);
}

TEST(Packer, LosslessKeepsAllAndTheLastRowIsShort) {
    const Packed packed = pack(Packing::lossless, 4, two_groups);
    EXPECT_EQ(packed.rows, (Rows{{1, 2, 3, 4}, {5, 6, 7, 8}, {9, 10, 11, 12}, {13}}));
    EXPECT_EQ(packed.dropped, 0);
    EXPECT_EQ(pack(Packing::lossless, 13, two_groups).rows.size(), 1u) << "no empty row at the end";
}

TEST(Packer, NoneKeepsRowsAsTheyAre) {
    EXPECT_EQ(pack(Packing::none, 0, two_groups).rows,
              (Rows{{1, 2}, {}, {3, 4, 5}, {6}, {7, 8, 9, 10, 11, 12, 13}}));
}

TEST(Packer, NoneCutsRowsThatAreTooLong) {
    const Packed packed = pack(Packing::none, 2, two_groups);
    EXPECT_EQ(packed.rows, (Rows{{1, 2}, {}, {3, 4}, {6}, {7, 8}}));
    EXPECT_EQ(packed.dropped, 6);
}

TEST(Packing, Names) {
    for (const Packing packing : {Packing::hf, Packing::lossless, Packing::none})
        EXPECT_EQ(packing_from_name(packing_name(packing), "--packing"), packing);
    test::expect_error<UsageError>([&] { packing_from_name("best", "--packing"); },
                                   {"--packing is \"best\""});
}

TEST(BlockSize, FollowsRunClm) {
    // Llama-2, Llama-3: the tokenizer sets no length.
    EXPECT_EQ(choose_block_size({}, 1e30, 4096).block_size, 1024);
    const std::string shortened = choose_block_size({}, 1e30, 4096).warning;
    EXPECT_EQ(shortened,
              "The tokenizer sets no limit; blocks of 1024 tokens are used (--block_size changes that).");
    EXPECT_EQ(choose_block_size({}, 1e30, 512).block_size, 512);
    EXPECT_EQ(choose_block_size({}, 1e30, 0).block_size, 1024);
    // Llama-3.1.
    EXPECT_EQ(choose_block_size({}, 131072, 131072).block_size, 131072);
    EXPECT_EQ(choose_block_size({}, 131072, 131072).warning, "");
    EXPECT_EQ(choose_block_size({}, 2048, 1024).block_size, 1024);
    const std::string longer = choose_block_size({}, 2048, 1024).warning;
    EXPECT_NE(longer.find("(2048) is more than the model's 1024 positions; blocks of 1024 tokens"),
              std::string::npos)
        << longer;
    // A requested size is limited only by the tokenizer.
    EXPECT_EQ(choose_block_size(8192, 1e30, 4096).block_size, 8192);
    EXPECT_EQ(choose_block_size(8192, 1e30, 4096).warning, "");
    EXPECT_EQ(choose_block_size(8192, 4096, 100).block_size, 4096);
    const std::string lowered = choose_block_size(8192, 4096, 100).warning;
    EXPECT_NE(lowered.find("8192 is larger than the tokenizer's model_max_length; 4096"), std::string::npos)
        << lowered;
    test::expect_error<UsageError>([&] { choose_block_size(0, 4096, 100); }, {"block size is 0"});
    test::expect_error<UsageError>([&] { choose_block_size(1, 4096, 100); }, {"block size is 1"});
    EXPECT_EQ(choose_longest_row({}, 1e30, 4096).block_size, 4096);
    EXPECT_EQ(choose_longest_row({}, 2048, 4096).block_size, 2048);
    EXPECT_EQ(choose_longest_row({}, 1e30, 0).block_size, 0);
    EXPECT_EQ(choose_longest_row(64, 1e30, 4096).block_size, 64);
    EXPECT_EQ(choose_longest_row(64, 32, 4096).block_size, 32);
    test::expect_error<UsageError>([&] { choose_longest_row(1, 4096, 100); }, {"block size is 1"});
    test::expect_error([&] { choose_block_size(64, 0, 100); }, {"model_max_length is 0"});
}

}  // namespace
}  // namespace drover
