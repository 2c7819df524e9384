#pragma once

#include "comm/carrier.h"

namespace drover::test {

/// The same checks for every kind of carrier; each rank calls them. They throw std::runtime_error describing
/// what differs.

/// Every collective, dtype and awkward count over all ranks, compared with a loop over the ranks, bit for bit
/// if the carrier is exact.
void check_collectives(const Carrier& at);
/// Several collectives and messages in flight at once, waited for in a different order.
void check_overlap(const Carrier& at);
/// Collectives of the two axes of a mesh of `columns` columns, interleaved. The world's size is a multiple of
/// columns.
void check_mesh(const Carrier& at, int columns);
/// Collectives that are started together, followed by collectives of another axis.
void check_groups(const Carrier& at);
/// Messages that can only be received after a later collective, as a pipeline sends them.
void check_messages(const Carrier& at);

/// Notes reach ranks whatever they are doing.
void check_notes(World& world);

/// All ranks of the world, in order.
std::vector<int> all_ranks(const World& world);

}  // namespace drover::test
