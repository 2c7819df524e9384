#include "data/conversation/example_pipeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/error.h"

namespace drover {
namespace {

class ExampleReader {
  public:
    ExampleReader(const RowDataset& dataset, Groups groups)
        : source_(dataset.open(0)), groups_(std::move(groups)) {}

    bool operator()(ExamplePiece& piece) {
        constexpr std::int64_t rows_at_once = 64;
        const std::int64_t left = groups_.left_in_group(row_);
        piece.first_row = row_;
        source_->next(piece.rows, static_cast<std::size_t>(std::min(left, rows_at_once)));
        const auto count = static_cast<std::int64_t>(piece.rows.size());
        row_ += count;
        piece.ends_group = count == left;
        return count > 0;
    }

  private:
    std::unique_ptr<RowSource> source_;
    Groups groups_;
    std::int64_t row_ = 0;
};

/// Does some work on a row. Errors say which one they are about.
template <class Work>
void with_row_number(std::int64_t row, const Work& work) {
    try {
        work();
    } catch (const Error& error) {
        throw Error(fmt::format("row {}: {}", row + 1, error.cause()), error.remedy());
    }
}

}  // namespace

std::unique_ptr<OrderedPipeline<ExamplePiece>> make_example_pipeline(
    const RowDataset& dataset, ExampleFormat format, const ExampleTokenizer& examples,
    const SftOptions& options, const Groups& groups, std::size_t threads) {
    return std::make_unique<OrderedPipeline<ExamplePiece>>(
        threads,
        // std::function must be copyable, and a reader is not.
        [reader = std::make_shared<ExampleReader>(dataset, groups)](ExamplePiece& piece) {
            return (*reader)(piece);
        },
        [&examples, &options, format](ExamplePiece& piece) {
            piece.examples.clear();
            for (std::size_t i = 0; i < piece.rows.size(); ++i)
                with_row_number(piece.first_row + static_cast<std::int64_t>(i), [&] {
                    piece.examples.push_back(
                        examples(read_example(piece.rows[i], format, options.text_field)));
                });
        });
}

}  // namespace drover
