#include "data/conversation/example_stream.h"

#include <utility>

#include "core/error.h"

namespace drover {

ExampleStream::ExampleStream(const RowDataset& dataset, ExampleFormat format,
                             std::shared_ptr<const ExampleTokenizer> examples, SftOptions options,
                             std::size_t threads, std::shared_ptr<FirstWarnings> warnings)
    : examples_(std::move(examples)),
      options_(std::move(options)),
      warnings_(std::move(warnings)),
      maker_(options_, report_, [this](TokenRow&& row) { rows_.push_back(std::move(row)); }) {
    require(!options_.shuffle_seed, "a stream of shuffled examples");
    require(options_.packing == DocumentPacking::none || options_.max_length,
            "rows that are packed have a length");
    pipeline_ = make_example_pipeline(dataset, format, *examples_, options_, Groups(0, 1), threads);
}

bool ExampleStream::next(TokenRow& row) {
    while (rows_.empty() && !ended_) {
        ExamplePiece* const piece = pipeline_->next();
        ended_ = piece == nullptr;
        if (!ended_)
            for (TokenizedExample& example : piece->examples) {
                maker_.count(example);
                maker_.place(example);
                if (warnings_) warnings_->look(report_);
            }
        if (ended_ || piece->ends_group) maker_.end_group();
    }
    if (rows_.empty()) return false;
    row = std::move(rows_.front());
    rows_.pop_front();
    return true;
}

}  // namespace drover
