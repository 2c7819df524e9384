#include "data/rows/row_subsets.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "core/content_hash.h"
#include "core/error.h"

namespace drover {
namespace {

/// Of every `period` rows from `begin` on, those at [low, high); none from `end` on (if it is not negative).
struct Pattern {
    std::int64_t begin, end, period, low, high;

    std::int64_t width() const { return high - low; }
    /// The position of the subset's row `row` in the whole.
    std::int64_t position(std::int64_t row) const {
        return begin + row / width() * period + low + row % width();
    }
    bool holds(std::int64_t position) const {
        const std::int64_t at = (position - begin) % period;
        return at >= low && at < high;
    }
    /// How many of the first `rows` rows of the whole are in the subset.
    std::int64_t count(std::int64_t rows) const {
        const std::int64_t reached =
            std::max<std::int64_t>(0, (end < 0 ? rows : std::min(end, rows)) - begin);
        return reached / period * width() + std::clamp(reached % period - low, std::int64_t{0}, width());
    }
};

class SubsetSource : public RowSource {
  public:
    SubsetSource(std::unique_ptr<RowSource> source, const Pattern& pattern, std::int64_t position)
        : source_(std::move(source)), pattern_(pattern), position_(position) {}

    void next(RowBatch& batch, std::size_t max_rows) override {
        batch.clear();
        while (batch.size() < max_rows) {
            std::int64_t wanted = static_cast<std::int64_t>(max_rows - batch.size());
            if (pattern_.end >= 0) wanted = std::min(wanted, pattern_.end - position_);
            if (wanted <= 0) return;
            source_->next(whole_, static_cast<std::size_t>(wanted));
            if (whole_.size() == 0) return;
            for (std::size_t i = 0; i < whole_.size(); ++i, ++position_)
                if (pattern_.holds(position_)) batch.add(whole_[i]);
        }
    }

  private:
    std::unique_ptr<RowSource> source_;
    Pattern pattern_;
    std::int64_t position_;
    RowBatch whole_;
};

class EmptySource : public RowSource {
  public:
    void next(RowBatch& batch, std::size_t) override { batch.clear(); }
};

class RowSubset : public RowDataset {
  public:
    RowSubset(SharedRows rows, const Pattern& pattern) : rows_(std::move(rows)), pattern_(pattern) {}

    std::unique_ptr<RowSource> open(std::int64_t first_row) const override {
        if (pattern_.width() <= 0) return std::make_unique<EmptySource>();
        const std::int64_t position = pattern_.position(first_row);
        if (pattern_.end >= 0 && position >= pattern_.end) return std::make_unique<EmptySource>();
        return std::make_unique<SubsetSource>(rows_->open(position), pattern_, position);
    }
    std::int64_t row_count() const override {
        return pattern_.width() <= 0 ? 0 : pattern_.count(rows_->row_count());
    }
    const std::vector<std::string>& column_names() const override { return rows_->column_names(); }
    const std::string& text_column() const override { return rows_->text_column(); }
    std::string fingerprint() const override { return of_whole(rows_->fingerprint()); }
    std::string quick_fingerprint() const override { return of_whole(rows_->quick_fingerprint()); }
    const TokenForm* token_form() const override { return rows_->token_form(); }
    std::shared_ptr<const TrainingRows> token_rows() const override {
        if (rows_->token_form() == nullptr) return nullptr;
        require(pattern_.period == 1, "rows that are not read in order are a range");
        return training_row_range(rows_->token_rows(), pattern_.begin, pattern_.end);
    }

  private:
    std::string of_whole(std::string_view fingerprint) const {
        return ContentHash()
            .add("subset 1")
            .add(fingerprint)
            .add(fmt::format("{} {} {} {} {}", pattern_.begin, pattern_.end, pattern_.period, pattern_.low,
                             pattern_.high))
            .hex();
    }

    SharedRows rows_;
    Pattern pattern_;
};

void check_percent(int percent) {
    if (percent < 0 || percent > 100)
        throw Error(fmt::format("A validation split of {} % is not possible.", percent),
                    "Give validation_split_percentage a value from 0 to 100.");
}

}  // namespace

SharedRows row_range(SharedRows rows, std::int64_t begin, std::int64_t end) {
    require(begin >= 0 && end >= begin, "a range of rows that ends before it begins");
    return std::make_shared<RowSubset>(std::move(rows), Pattern{begin, end, 1, 0, 1});
}

std::int64_t percent_boundary(std::int64_t rows, int percent) {
    // nearbyint rounds half to even in the default rounding mode. The order of operations is that of the
    // datasets library: percent · rows is exact, so there is one rounding, in the division.
    return static_cast<std::int64_t>(
        std::nearbyint(static_cast<double>(percent) * static_cast<double>(rows) / 100.0));
}

TrainAndValidation split_by_percent(SharedRows rows, int percent) {
    check_percent(percent);
    const std::int64_t count = rows->row_count();
    const std::int64_t boundary = percent_boundary(count, percent);
    return {row_range(rows, boundary, count), row_range(rows, 0, boundary)};
}

TrainAndValidation split_streaming(SharedRows rows, int percent) {
    check_percent(percent);
    return {std::make_shared<RowSubset>(rows, Pattern{0, -1, 100, std::min(percent + 1, 100), 100}),
            std::make_shared<RowSubset>(rows, Pattern{0, -1, 100, 0, percent})};
}

}  // namespace drover
