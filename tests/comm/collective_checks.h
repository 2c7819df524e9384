#pragma once

#include "comm/world.h"

namespace drover::test {

/// The same checks for every kind of world; each rank calls them. They throw std::runtime_error with what
/// differs.

/// Every collective, dtype and awkward count over all ranks, against what a loop over the ranks gives, bit
/// for bit.
void check_collectives(World& world);
/// Several collectives and messages under way at once, waited for in another order.
void check_overlap(World& world);
/// Collectives of the two axes of a mesh of `columns` columns, interleaved. The world's size is a multiple of
/// columns.
void check_mesh(World& world, int columns);
/// Messages that can only be taken after a later collective, as a pipeline sends them.
void check_messages(World& world);

/// All ranks of the world, in order.
std::vector<int> all_ranks(const World& world);

}  // namespace drover::test
