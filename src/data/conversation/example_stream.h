#pragma once

#include <deque>
#include <memory>

#include "data/conversation/example_pipeline.h"
#include "data/conversation/first_warnings.h"
#include "data/conversation/row_maker.h"

namespace drover {

/// The rows that write_sft_file() writes, without shuffling and shards, made while the examples are read.
/// Memory: the pieces of the pipeline and, with packing, a thousand examples.
class ExampleStream final : public TokenRowStream {
  public:
    /// `dataset` must outlive the stream. Rows of options.packing have options.max_length. `warnings` may be
    /// null.
    ExampleStream(const RowDataset& dataset, ExampleFormat format,
                  std::shared_ptr<const ExampleTokenizer> examples, SftOptions options, std::size_t threads,
                  std::shared_ptr<FirstWarnings> warnings = nullptr);

    bool next(TokenRow& row) override;

  private:
    std::shared_ptr<const ExampleTokenizer> examples_;
    SftOptions options_;
    SftReport report_;
    std::shared_ptr<FirstWarnings> warnings_;
    std::deque<TokenRow> rows_;
    RowMaker maker_;
    bool ended_ = false;
    std::unique_ptr<OrderedPipeline<ExamplePiece>> pipeline_;
};

}  // namespace drover
