#pragma once

#include <vector>

#include "model/params.h"
#include "model/partition.h"
#include "parallel/schedule/schedule.h"

namespace drover {

/// A chunk of a rank, and where its parameters are in the rank's ParamSpec.
struct StageChunk {
    ModelChunk layers;
    int slots = 1;  ///< micro-batches whose activations are kept at a time

    int embedding = -1;     ///< its unit; −1: another stage embeds
    int first_block = 0;    ///< the units of the blocks follow each other
    int blocks_before = 0;  ///< in earlier chunks of the rank
    int head = -1;          ///< −1: another stage has the head
    int projection = -1;    ///< the unit with the vocabulary projection: the head, or a tied embedding

    int blocks() const { return static_cast<int>(layers.blocks.count); }
    /// The number of one of its blocks in the model.
    int block(int local) const { return static_cast<int>(layers.blocks.begin) + local; }
    /// All units that its backward writes.
    std::vector<int> units() const;
    std::vector<int> block_units() const;
};

/// The part of a model that one pipeline rank computes; the whole model without a pipeline.
struct Stage {
    std::vector<StageChunk> chunks;  ///< in the order of the model
    ParamSpec spec;                  ///< of these layers, and of a tied embedding that the head uses

    bool embeds() const { return chunks.front().embedding >= 0; }
    /// Blocks of all chunks.
    int blocks() const { return chunks.back().blocks_before + chunks.back().blocks(); }
    const StageChunk* head_chunk() const { return chunks.back().head >= 0 ? &chunks.back() : nullptr; }
};

/// Rank `rank` of a pipeline over the stages of cut_into_stages(), with the units of `whole`, the model's
/// make_param_spec().
Stage make_stage(const ModelConfig& config, const ParamSpec& whole, const std::vector<ModelChunk>& stages,
                 int ranks, int rank);

}  // namespace drover
