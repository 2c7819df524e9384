#pragma once

#include <array>
#include <memory>

#include "model/batch.h"

namespace drover {

/// Device buffers for the largest micro-batch; smaller ones use a prefix. There are two sets, filled in turn
/// from staging memory and beside the main stream, so that a micro-batch is uploaded while the device still
/// works on the one before.
class BatchBuffers {
  public:
    void plan(Arena& arena, std::int64_t rows, std::int64_t row_length);

    /// The micro-batch, for work on `stream`; valid until the upload after the next one. Error when a token
    /// id is outside the vocabulary; neither the batch nor its rows may be larger than planned. Of a batch
    /// that is only a shape nothing is uploaded.
    MicroBatch upload(Backend& backend, Stream stream, const TokenBatch& batch, std::int64_t vocab_size);

  private:
    enum Part { ids, targets, positions, counts, begin, length, parts };
    struct Set {
        std::array<Tensor, parts> on_device;  // each [largest N] i32
        std::array<Tensor, parts> staged;     // likewise, in staging memory
        std::unique_ptr<Fence> used;          // the work that reads the set's last micro-batch
        std::unique_ptr<Fence> copied;
    };

    void prepare_staging(Backend& backend);
    MicroBatch any_of_shape(std::int64_t rows, std::int64_t row_length) const;

    std::array<Set, 2> sets_;
    std::size_t turn_ = 0;
    MemoryBlock staging_;
    std::int64_t longest_row_ = 0;
};

}  // namespace drover
