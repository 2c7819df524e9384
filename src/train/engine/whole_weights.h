#pragma once

#include <vector>

#include "train/engine/train_engine.h"

/// The weights of an engine as tensors of the host, whatever the ranks hold of them.
namespace drover {

/// Whether this rank holds every leaf whole and up to date, so that it needs no other to read one.
bool holds_whole_weights(const TrainEngine& engine);

/// An owned leaf (index into store().owned()) as it would be saved: the master copy where there is one.
/// Collective, unless holds_whole_weights(): every rank reads the same leaves in the same order.
std::vector<float> read_whole_leaf(const TrainEngine& engine, std::size_t index, Backend& backend,
                                   const Mesh& mesh);

}  // namespace drover
