#pragma once

#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "backend/fence.h"
#include "backend/ops/attention.h"
#include "core/arena.h"
#include "core/batch.h"

namespace drover {

class Backend;

/// Identifies the noise that the tokens of a micro-batch get in training, on any rank.
struct TokenNoise {
    std::uint64_t seed = 0;
    std::uint64_t micro_batch = 0;  ///< its number within the step
    std::int64_t first_token =
        0;           ///< index of its first token when the tokens of all replicas are concatenated in order
    Tensor scalars;  ///< [StepScalar::count] f32, for the number of the update
};

/// The tokens with a target as the rows of a smaller matrix, in their order. R is their number, rounded up.
struct TargetRows {
    Tensor tokens;        ///< [R] i32: each row's token, −1 for a row that only fills up
    Tensor targets;       ///< [R] i32: its target, ignored_target likewise
    Tensor row_of_token;  ///< [N] i32: −1 for a token without a target

    explicit operator bool() const { return static_cast<bool>(tokens); }

    /// R for this many targets among N tokens, or 0 where rows of their own do not pay: from 7/8 of the
    /// tokens on. Depends on nothing else, so all ranks that share a micro-batch decide alike.
    static std::int64_t count(std::int64_t targets, std::int64_t tokens);
};

/// A micro-batch as the model's operations read it on the device.
struct DeviceBatch {
    Tensor ids;        ///< [N] i32
    Tensor targets;    ///< [N] i32
    Tensor positions;  ///< [N] i32
    Tensor counts;     ///< [N] i32: 0 for tokens in no sequence; absent when there are none
    Sequences sequences;
    TargetRows target_rows{};           ///< absent where they do not pay
    std::optional<TokenNoise> noise{};  ///< absent in evaluation

    std::int64_t tokens() const { return sequences.tokens(); }
};

/// Device buffers for the largest micro-batch; smaller ones use a prefix. There is a set for every
/// micro-batch that is in use at a time and one more. They are filled in turn from staging memory on a second
/// stream, so that a micro-batch is uploaded while the device still works on the previous one.
class BatchBuffers {
  public:
    void plan(Arena& arena, std::int64_t rows, std::int64_t row_length, int used_at_a_time);

    /// The micro-batch, for work on `stream`: all of it must be there when as many more as are used at a time
    /// have been uploaded. Error when a token
    /// id is outside the vocabulary; neither the batch nor its rows may be larger than planned. Nothing is
    /// uploaded for a shape-only batch.
    DeviceBatch upload(Backend& backend, Stream stream, const Batch& batch, std::int64_t vocab_size);

  private:
    enum Part {
        ids,
        targets,
        positions,
        counts,
        begin,
        length,
        row_tokens,
        row_targets,
        row_of_token,
        parts
    };
    struct Set {
        std::array<Tensor, parts> on_device;  // each [largest N] i32
        std::array<Tensor, parts> staged;     // likewise, in staging memory
        std::unique_ptr<Fence> used;          // the work that reads the set's last micro-batch
        std::unique_ptr<Fence> copied;
    };

    void prepare_staging(Backend& backend);
    DeviceBatch any_of_shape(std::int64_t rows, std::int64_t row_length) const;

    std::vector<Set> sets_;
    std::size_t turn_ = 0;
    MemoryBlock staging_;
    std::int64_t longest_row_ = 0;
};

}  // namespace drover
