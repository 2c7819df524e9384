#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

/// An engine's weights as host tensors, however they are distributed over the ranks.
namespace drover {

class Backend;
class Mesh;
class TrainEngine;
struct OwnedLeaf;

/// Whether this rank holds every leaf whole and up to date, so that it can read one without the other ranks.
bool holds_whole_weights(const TrainEngine& engine);

/// The part of an owned leaf that this rank owns, as it would be saved. Waits for the device; not collective.
std::vector<float> read_owned_part(const TrainEngine& engine, std::size_t index, Backend& backend);

/// Puts a leaf's owned part into its place in the whole leaf.
void place_owned_part(const OwnedLeaf& leaf, std::span<const float> part, std::span<float> whole);

/// A leaf of the model by its published name as it would be saved: the master copy if there is one.
/// Collective, unless holds_whole_weights(): every rank reads the same leaves in the same order.
std::vector<float> read_whole_leaf(const TrainEngine& engine, std::string_view name, Backend& backend,
                                   const Mesh& mesh);

}  // namespace drover
