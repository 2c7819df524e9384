#pragma once

#include "comm/carrier.h"

namespace drover::test {

/// The same checks for every kind of carrier; each rank calls them. They throw std::runtime_error with what
/// differs.

/// Every collective, dtype and awkward count over all ranks, against what a loop over the ranks gives, bit
/// for bit where the carrier is exact.
void check_collectives(const Carrier& at);
/// Several collectives and messages under way at once, waited for in another order.
void check_overlap(const Carrier& at);
/// Collectives of the two axes of a mesh of `columns` columns, interleaved. The world's size is a multiple of
/// columns.
void check_mesh(const Carrier& at, int columns);
/// Collectives that are started together, and ones of another axis that follow them.
void check_groups(const Carrier& at);
/// Messages that can only be taken after a later collective, as a pipeline sends them.
void check_messages(const Carrier& at);

/// Notes reach ranks whatever these do.
void check_notes(World& world);

/// All ranks of the world, in order.
std::vector<int> all_ranks(const World& world);

}  // namespace drover::test
