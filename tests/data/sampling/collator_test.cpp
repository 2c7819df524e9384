#include "data/sampling/collator.h"

#include <gtest/gtest.h>

#include <numeric>

#include "core/error.h"
#include "core/json.h"
#include "core/json_text.h"
#include "data/fakes.h"
#include "support/errors.h"
#include "support/golden.h"

namespace drover {
namespace {

using Ids = std::vector<std::int32_t>;
const std::vector<std::vector<TokenId>> rows{{5, 2, 6}, {7, 8, 9, 2, 2}, {}};

TEST(Collator, PadsToTheLongestRowAndIgnoresEveryPadId) {
    CausalCollator collator({.pad_id = 2});
    const Batch batch = collator.collate(rows);
    EXPECT_EQ(batch.rows, 3);
    EXPECT_EQ(batch.row_length, 5);
    EXPECT_EQ(batch.ids, (Ids{5, 2, 6, 2, 2, 7, 8, 9, 2, 2, 2, 2, 2, 2, 2}));
    EXPECT_EQ(batch.labels, (Ids{5, -100, 6, -100, -100, 7, 8, 9, -100, -100, -100, -100, -100, -100, -100}));
    EXPECT_EQ(batch.sequence_begin, (Ids{0, 5, 10}));
    EXPECT_EQ(batch.sequence_length, (Ids{3, 5, 0}));
}

TEST(Collator, LabelsThatAreGivenStay) {
    CausalCollator collator({.pad_id = 2});
    const std::vector<std::vector<TokenId>> labels{{}, {-100, 8, 9, -100, 2}, {}};
    const Batch batch = collator.collate(rows, labels);
    EXPECT_EQ(batch.labels, (Ids{5, -100, 6, -100, -100, -100, 8, 9, -100, 2, -100, -100, -100, -100, -100}));
}

TEST(Collator, EqualsTransformers) {
    const Json golden = read_json_file(test::golden_path("samplers.json"))["collated"];
    EXPECT_EQ(golden.size(), 4u);
    for (const Json& expected : golden) {
        CausalCollator collator(
            {.pad_id = expected["pad_id"], .pad_to_multiple_of = expected["pad_to_multiple_of"]});
        const Batch batch = collator.collate(expected["rows"].get<std::vector<std::vector<TokenId>>>());
        Ids ids, labels;
        for (const Json& row : expected["input_ids"])
            for (const Json& id : row) ids.push_back(id);
        for (const Json& row : expected["labels"])
            for (const Json& label : row) labels.push_back(label);
        EXPECT_EQ(batch.ids, ids);
        EXPECT_EQ(batch.labels, labels);
        ASSERT_EQ(batch.sequence_length.size(), expected["attention_mask"].size());
        for (std::size_t row = 0; row < batch.sequence_length.size(); ++row)
            EXPECT_EQ(batch.sequence_length[row],
                      std::accumulate(expected["attention_mask"][row].begin(),
                                      expected["attention_mask"][row].end(), 0,
                                      [](int sum, const Json& one) { return sum + one.get<int>(); }));
    }
}

TEST(Collator, CanKeepRealTokensThatEqualThePad) {
    CausalCollator collator({.pad_id = 2, .ignore_every_pad_id = false});
    EXPECT_EQ(collator.collate(rows).labels,
              (Ids{5, 2, 6, -100, -100, 7, 8, 9, 2, 2, -100, -100, -100, -100, -100}));
}

TEST(Collator, PadsToAMultiple) {
    CausalCollator collator({.pad_to_multiple_of = 4});
    EXPECT_EQ(collator.collate(rows).row_length, 8);
    const Batch full = collator.collate(std::vector<std::vector<TokenId>>{{1, 2, 3, 4}});
    EXPECT_EQ(full.row_length, 4);
    EXPECT_TRUE(full.sequence_begin.empty()) << "nothing is padded";
}

TEST(Collator, RefusesNonsense) {
    test::expect_error<UsageError>([&] { CausalCollator({.pad_to_multiple_of = 0}); },
                                   {"pad_to_multiple_of is 0"});
}

TEST(Collator, ChoosesThePad) {
    struct NoPad : test::ByteTokenizer {
        std::optional<TokenId> pad() const override { return std::nullopt; }
    };
    EXPECT_EQ(choose_pad_id(test::ByteTokenizer(), false), 0);
    EXPECT_EQ(choose_pad_id(test::ByteTokenizer(), true), 2);
    EXPECT_EQ(choose_pad_id(NoPad(), true), 2);
    test::expect_error([&] { choose_pad_id(NoPad(), false); }, {"no pad token"});
}

}  // namespace
}  // namespace drover
