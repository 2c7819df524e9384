#include "data/rows/training_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/error.h"

namespace drover {
namespace {

class RowRange final : public TrainingRows {
  public:
    RowRange(std::shared_ptr<const TrainingRows> rows, std::int64_t begin, std::int64_t end)
        : rows_(std::move(rows)), begin_(begin), size_(end - begin) {}

    std::int64_t size() const override { return size_; }
    std::int64_t length(std::int64_t row) const override { return rows_->length(inside(row)); }
    void read(std::int64_t row, std::vector<TokenId>& ids, std::vector<TokenId>& labels) const override {
        rows_->read(inside(row), ids, labels);
    }
    void documents(std::int64_t row, std::vector<std::int32_t>& lengths) const override {
        rows_->documents(inside(row), lengths);
    }
    /// Checking each row would read all of them if the files do not store lengths.
    std::int64_t longest() const override { return size_ > 0 ? rows_->longest() : 0; }

  private:
    std::int64_t inside(std::int64_t row) const {
        require(row >= 0 && row < size_, "a row outside its range is read");
        return begin_ + row;
    }

    std::shared_ptr<const TrainingRows> rows_;
    std::int64_t begin_, size_;
};

class CutRows final : public TrainingRows {
  public:
    CutRows(std::shared_ptr<const TrainingRows> rows, std::int64_t longest)
        : rows_(std::move(rows)), longest_(longest) {}

    std::int64_t size() const override { return rows_->size(); }
    std::int64_t length(std::int64_t row) const override { return std::min(rows_->length(row), longest_); }
    void read(std::int64_t row, std::vector<TokenId>& ids, std::vector<TokenId>& labels) const override {
        rows_->read(row, ids, labels);
        for (std::vector<TokenId>* const values : {&ids, &labels})
            if (std::ssize(*values) > longest_) values->resize(static_cast<std::size_t>(longest_));
    }
    void documents(std::int64_t row, std::vector<std::int32_t>& lengths) const override {
        rows_->documents(row, lengths);
        std::int64_t left = longest_;
        for (std::int32_t& length : lengths) {
            length = static_cast<std::int32_t>(std::min<std::int64_t>(length, left));
            left -= length;
        }
        std::erase(lengths, 0);
    }
    std::int64_t longest() const override { return std::min(rows_->longest(), longest_); }

  private:
    std::shared_ptr<const TrainingRows> rows_;
    std::int64_t longest_;
};

class JoinedRows final : public TrainingRows {
  public:
    explicit JoinedRows(std::vector<std::shared_ptr<const TrainingRows>> parts) : parts_(std::move(parts)) {
        for (const auto& part : parts_) {
            begins_.push_back(size_);
            size_ += part->size();
        }
    }

    std::int64_t size() const override { return size_; }
    std::int64_t length(std::int64_t row) const override {
        const auto [part, inside] = place(row);
        return part->length(inside);
    }
    void read(std::int64_t row, std::vector<TokenId>& ids, std::vector<TokenId>& labels) const override {
        const auto [part, inside] = place(row);
        part->read(inside, ids, labels);
    }
    void documents(std::int64_t row, std::vector<std::int32_t>& lengths) const override {
        const auto [part, inside] = place(row);
        part->documents(inside, lengths);
    }
    std::int64_t longest() const override {
        std::int64_t longest = 0;
        for (const auto& part : parts_) longest = std::max(longest, part->longest());
        return longest;
    }

  private:
    std::pair<const TrainingRows*, std::int64_t> place(std::int64_t row) const {
        require(row >= 0 && row < size_, "a row outside the joined ones is read");
        const auto behind = std::upper_bound(begins_.begin(), begins_.end(), row);
        const auto part = static_cast<std::size_t>(behind - begins_.begin()) - 1;
        return {parts_[part].get(), row - begins_[part]};
    }

    std::vector<std::shared_ptr<const TrainingRows>> parts_;
    std::vector<std::int64_t> begins_;
    std::int64_t size_ = 0;
};

}  // namespace

void TrainingRows::documents(std::int64_t, std::vector<std::int32_t>& lengths) const {
    lengths.clear();
}

std::vector<std::int64_t> TrainingRows::lengths() const {
    std::vector<std::int64_t> all(static_cast<std::size_t>(size()));
    for (std::int64_t row = 0; row < size(); ++row) all[static_cast<std::size_t>(row)] = length(row);
    return all;
}

std::int64_t TrainingRows::longest() const {
    std::int64_t longest = 0;
    for (std::int64_t row = 0; row < size(); ++row) longest = std::max(longest, length(row));
    return longest;
}

std::shared_ptr<const TrainingRows> training_row_range(std::shared_ptr<const TrainingRows> rows,
                                                       std::int64_t begin, std::int64_t end) {
    require(begin >= 0 && end >= begin && end <= rows->size(), "a range outside the rows");
    if (begin == 0 && end == rows->size()) return rows;
    return std::make_shared<RowRange>(std::move(rows), begin, end);
}

std::shared_ptr<const TrainingRows> cut_training_rows(std::shared_ptr<const TrainingRows> rows,
                                                      std::int64_t longest) {
    require(longest >= 1, "rows are cut to nothing");
    return std::make_shared<CutRows>(std::move(rows), longest);
}

std::shared_ptr<const TrainingRows> joined_training_rows(
    std::vector<std::shared_ptr<const TrainingRows>> parts) {
    require(!parts.empty(), "no rows are joined");
    if (parts.size() == 1) return std::move(parts.front());
    return std::make_shared<JoinedRows>(std::move(parts));
}

std::string_view packing_name(Packing packing) {
    switch (packing) {
        case Packing::hf:
            return "hf";
        case Packing::lossless:
            return "lossless";
        case Packing::none:
            return "none";
    }
    bug("an unknown packing");
}

Packing packing_from_name(std::string_view name, std::string_view where) {
    for (const Packing packing : {Packing::hf, Packing::lossless, Packing::none})
        if (name == packing_name(packing)) return packing;
    throw UsageError(fmt::format("{} is \"{}\".", where, name), "Use hf, lossless or none.");
}

}  // namespace drover
