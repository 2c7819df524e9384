#pragma once

#include <functional>

#include "data/packing/token_stream.h"
#include "data/rows/row_subsets.h"
#include "data/rows/token_row.h"
#include "data/sampling/stream_batches.h"
#include "train/loop/training_data.h"

namespace drover {

/// Begins the rows of a dataset once more, with some threads.
using OpenTokenRows = std::function<std::unique_ptr<TokenRowStream>(std::size_t threads)>;

struct TextStreamOptions {
    std::vector<SharedRows> datasets;  ///< at least one
    /// For each dataset, its rows, of up to packing.block_size tokens, in place of blocks of its text. Empty:
    /// text.
    std::vector<OpenTokenRows> examples{};
    /// One per dataset: they are mixed, and each is read again when it ends, so that the mixture never ends.
    /// Empty: they are read one after the other.
    std::vector<double> weights{};
    std::shared_ptr<const Tokenizer> tokenizer;
    PackingOptions packing;  ///< packs each dataset into blocks; max_rows of all of them are an epoch
    StreamDealing dealing;
    CollatorOptions collator;
    std::int64_t vocab_size = 0;  ///< of the model; tokens beyond it are an Error
    StreamEnd end = StreamEnd::never;
    /// This replica's part of every batch. Where replicas share batches, `dealing` gives whole ones to all of
    /// them.
    ReplicaPart part{};
};

/// Text that is read, tokenized and packed during training, in row order; every epoch reads it again. Nothing
/// is written, and memory does not grow with the text. The length of an epoch is known only when it ends, so
/// samples() and batches_per_epoch() are 0 until a stream that ends has been read.
///
/// A stream is a sequence of batches across consecutive epochs. Batch n depends only on the options: open({0,
/// n}) skips the batches before n, however many epochs they span.
class TextStreamData final : public TrainingData {
  public:
    explicit TextStreamData(TextStreamOptions options);

    std::int64_t samples() const override { return samples_; }
    std::int64_t batches_per_epoch() const override { return batches_per_epoch_; }
    std::int64_t tokens_per_epoch() const override { return samples_ * options_.packing.block_size; }
    std::unique_ptr<BatchStream> open(BatchPosition start) override;

  private:
    class Stream;

    TextStreamOptions options_;
    std::int64_t samples_ = 0;
    std::int64_t batches_per_epoch_ = 0;
};

}  // namespace drover
