#pragma once

#include "parallel/schedule/schedule.h"

/// The order in which the ranks of a pipeline compute. In all of them a stage takes the micro-batches'
/// gradients for its weights in ascending order, so sums of gradients have the same bits. Their bubbles are
/// in docs/design/pipeline.md.
namespace drover {

/// One chunk per rank. After a warm-up of one forward per later rank, every forward is followed by a
/// backward. Rank p holds at most P − p micro-batches.
PipelineSchedule one_forward_one_backward(int ranks, int micro_batches);

/// The same with several chunks per rank, in turns of P micro-batches each: a smaller bubble for more held
/// activations and more transfers. Error unless P divides the number of micro-batches.
PipelineSchedule interleaved(int ranks, int chunks, int micro_batches);

/// Weight gradients apart (ZB1P): a rank sends the gradient of its input before it computes that of its
/// weights, which fills the bubble. Rank p's weight gradients lag p backwards behind, so that every rank
/// holds at most P micro-batches, as 1F1B's worst rank does. Error with several chunks per rank unless P
/// divides the number of micro-batches.
PipelineSchedule zero_bubble(int ranks, int chunks, int micro_batches);

/// Evaluation. Any number of micro-batches will do.
PipelineSchedule forward_only(int ranks, int chunks, int micro_batches);

}  // namespace drover
