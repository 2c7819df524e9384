#include "data/rows/row_subsets.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "data/read_all.h"
#include "support/errors.h"

namespace drover {
namespace {

/// Rows "0", "1", …
class Numbers : public RowDataset {
  public:
    explicit Numbers(std::int64_t count) : count_(count) {}

    std::unique_ptr<RowSource> open(std::int64_t first_row) const override {
        return std::make_unique<Source>(first_row, count_);
    }
    std::int64_t row_count() const override { return count_; }
    const std::vector<std::string>& column_names() const override { return columns_; }
    const std::string& text_column() const override { return columns_[0]; }
    std::string fingerprint() const override { return "numbers"; }
    std::string quick_fingerprint() const override { return "numbers"; }

  private:
    class Source : public RowSource {
      public:
        Source(std::int64_t next_row, std::int64_t count) : next_(next_row), count_(count) {}
        void next(RowBatch& batch, std::size_t max_rows) override {
            batch.clear();
            while (next_ < count_ && batch.size() < max_rows) batch.add(std::to_string(next_++));
        }

      private:
        std::int64_t next_, count_;
    };

    std::int64_t count_;
    std::vector<std::string> columns_{"text"};
};

std::vector<std::string> numbers(const std::vector<std::int64_t>& values) {
    std::vector<std::string> rows;
    for (const std::int64_t value : values) rows.push_back(std::to_string(value));
    return rows;
}

void expect_rows(const RowDataset& rows, const std::vector<std::int64_t>& expected) {
    EXPECT_EQ(rows.row_count(), static_cast<std::int64_t>(expected.size()));
    for (const std::size_t at_once : {1, 7, 1000})
        for (std::size_t first = 0; first <= expected.size() + 1; first += 1 + expected.size() / 5)
            EXPECT_EQ(
                test::read_all(rows, static_cast<std::int64_t>(first), at_once),
                numbers({expected.begin() + static_cast<std::ptrdiff_t>(std::min(first, expected.size())),
                         expected.end()}));
}

TEST(RowSubsets, PercentSplitTakesTheFirstRowsForValidation) {
    for (const std::int64_t count : {1, 10, 50, 99, 130}) {
        // 5 % of 10 and of 50 rows are ties, which are rounded to the even number.
        const std::int64_t boundary = count == 130 ? 6 : count == 99 ? 5 : count == 50 ? 2 : 0;
        const auto splits = split_by_percent(std::make_shared<Numbers>(count), 5);
        std::vector<std::int64_t> train, validation;
        for (std::int64_t i = 0; i < count; ++i) (i < boundary ? validation : train).push_back(i);
        expect_rows(*splits.train, train);
        expect_rows(*splits.validation, validation);
        EXPECT_NE(splits.train->fingerprint(), splits.validation->fingerprint());
    }
}

TEST(RowSubsets, StreamingSplitGoesByTheRowModulo100AndLosesOneRow) {
    for (const std::int64_t count : {1, 5, 6, 100, 105, 250})
        for (const int percent : {0, 5, 99, 100}) {
            const auto splits = split_streaming(std::make_shared<Numbers>(count), percent);
            std::vector<std::int64_t> train, validation;
            for (std::int64_t i = 0; i < count; ++i) {
                if (i % 100 < percent) validation.push_back(i);
                if (i % 100 > percent) train.push_back(i);
            }
            SCOPED_TRACE(count * 1000 + percent);
            expect_rows(*splits.train, train);
            expect_rows(*splits.validation, validation);
        }
}

TEST(RowSubsets, RangesOfRanges) {
    const auto range = row_range(row_range(std::make_shared<Numbers>(20), 5, 15), 2, 6);
    expect_rows(*range, {7, 8, 9, 10});
    EXPECT_EQ(range->text_column(), "text");
}

TEST(RowSubsets, ImpossiblePercentagesAreErrors) {
    for (const int percent : {-1, 101})
        test::expect_error([&] { split_by_percent(std::make_shared<Numbers>(5), percent); },
                           {std::to_string(percent)});
}

TEST(PercentSplit, HalvesGoToTheEvenNeighbour) {
    EXPECT_EQ(percent_boundary(10, 5), 0);  // 0.5
    EXPECT_EQ(percent_boundary(30, 5), 2);  // 1.5
    EXPECT_EQ(percent_boundary(50, 5), 2);  // 2.5
    EXPECT_EQ(percent_boundary(36718, 5), 1836);
    EXPECT_EQ(percent_boundary(7, 100), 7);
    EXPECT_EQ(percent_boundary(0, 5), 0);
}

}  // namespace
}  // namespace drover
