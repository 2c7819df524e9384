"""Writes tests/golden/pipeline_schedules: the schedules of torch.distributed.pipelining, without any process."""

import csv
import hashlib
import io
import json

from common import GOLDEN

import torch
from torch.distributed.pipelining import schedules

FOLDER = GOLDEN / "pipeline_schedules"
RANKS, MICRO_BATCHES, CHUNKS = range(1, 17), range(1, 65), range(1, 5)
# Whole files, for the form of cells and lines.
FILES = [("interleaved", 4, 2, 8), ("interleaved", 2, 3, 4), ("zero_bubble", 4, 1, 8), ("zero_bubble", 3, 2, 6)]
CLASSES = {
    "interleaved": schedules.ScheduleInterleaved1F1B,
    "zero_bubble": schedules.ScheduleInterleavedZeroBubble,
}


class RecordingStage:
    """A stage of one rank that notes what it is told to compute, and has nobody to talk to."""

    def __init__(self, rank, ranks):
        self.stage_index, self.num_stages, self.submod = rank, ranks, None
        self.actions = []

    def forward_one_chunk(self, micro_batch, *arguments, **options):
        self.actions.append(schedules._Action(self.stage_index, schedules.FORWARD, micro_batch))

    def backward_one_chunk(self, micro_batch, **options):
        self.actions.append(schedules._Action(self.stage_index, schedules.FULL_BACKWARD, micro_batch))

    def __getattr__(self, name):
        if name.startswith("get_") and name.endswith("_ops"):
            return lambda micro_batch: []
        return lambda *arguments, **options: None


def recorded(kind, ranks, micro_batches):
    """What a single-stage schedule does when it runs. Its _get_pipeline_order is made for pictures: the last rank's
    micro-batches are numbered from 1 there, and it does not know that there can be fewer micro-batches than ranks."""

    class Recorded(kind):
        def __init__(self, stage):
            self._stage, self._num_stages, self._n_microbatches = stage, ranks, micro_batches
            self._finalize_gradients = self.scale_grads = True

        def _check_inputs(self, arguments, options, targets, losses):
            return [()] * micro_batches, [{}] * micro_batches

        def _initialize_stage(self, *arguments):
            pass

        def _maybe_compute_loss(self, *arguments):
            pass

        def _maybe_get_loss(self, *arguments):
            pass

        def _update_losses(self, *arguments):
            pass

    order = {}
    for rank in range(ranks):
        stage = RecordingStage(rank, ranks)
        Recorded(stage)._step_microbatches()
        order[rank] = stage.actions
    return order


def generated(name, ranks, chunks, micro_batches):
    """A multi-stage schedule with its computations in pipeline_order; None where PyTorch refuses the numbers."""
    rounds = max(1, micro_batches // ranks)
    if micro_batches % rounds != 0:
        return None
    schedule = object.__new__(CLASSES[name])
    schedule.pp_group_size, schedule.n_local_stages = ranks, chunks
    schedule._n_microbatches, schedule._num_stages, schedule._stages = micro_batches, ranks * chunks, []
    schedule.number_of_rounds, schedule.microbatches_per_round = rounds, micro_batches // rounds
    schedule._unshard_lookahead, schedule._max_active_stages = "full", 3
    schedule._defer_reduce_grad_wait = schedule._defer_pp_recv = False
    schedule._max_outstanding_sends = None
    schedule.pipeline_order = {rank: schedule._calculate_single_rank_operations(rank) for rank in range(ranks)}
    if name == "zero_bubble":
        schedule.pipeline_order = schedule._add_bubbles_to_actions(ranks * chunks)
    return schedule


def without_idle(order):
    return {rank: [action for action in actions if action is not None] for rank, actions in order.items()}


def lowered(order, ranks, chunks, micro_batches):
    """With gathers, reductions and transfers, but without the waits, of which Drover's schedules have none."""
    order = {rank: schedules._add_unshard_reshard(actions) for rank, actions in order.items()}
    order = {rank: schedules._add_reduce_grad(actions, micro_batches) for rank, actions in order.items()}
    wait = schedules.WAIT_REDUCE_GRAD
    order = {rank: [a for a in actions if a.computation_type != wait] for rank, actions in order.items()}
    return schedules._add_send_recv(order, lambda stage: stage % ranks, ranks * chunks)


def digest(order):
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    for rank in order:
        writer.writerow(order[rank])
    return hashlib.sha256(text.getvalue().encode()).hexdigest()[:12]


def order_of(name, ranks, chunks, micro_batches):
    if name == "one_forward_one_backward":
        return recorded(schedules.Schedule1F1B, ranks, micro_batches) if chunks == 1 else None
    if name == "forward_only":
        return recorded(schedules._ScheduleForwardOnly, ranks, micro_batches) if chunks == 1 else None
    # With several chunks PyTorch makes turns of other lengths where Drover asks for whole ones.
    if micro_batches % ranks != 0 and (chunks > 1 or name == "interleaved"):
        return None
    schedule = generated(name, ranks, chunks, micro_batches)
    return schedule and without_idle(schedule.pipeline_order)


def main():
    lines = []
    for name in ["one_forward_one_backward", "interleaved", "zero_bubble", "forward_only"]:
        rows = []
        for ranks in RANKS:
            for chunks in CHUNKS:
                for micro_batches in MICRO_BATCHES:
                    order = order_of(name, ranks, chunks, micro_batches)
                    if order is None:
                        continue
                    if name != "forward_only":  # PyTorch's check asks for backwards
                        schedules._validate_schedule(order, ranks, ranks * chunks, micro_batches)
                    row = [ranks, chunks, micro_batches, digest(order)]
                    rows.append(row + [digest(lowered(order, ranks, chunks, micro_batches))])
        rows = [json.dumps(row, separators=(",", ":")) for row in rows]
        lines.append(f' "{name}": [\n  ' + ",\n  ".join(rows) + "\n ]")
    FOLDER.mkdir(exist_ok=True)
    text = '{\n "torch": "%s",\n' % torch.__version__.split("+")[0] + ",\n".join(lines) + "\n}\n"
    (FOLDER / "digests.json").write_text(text, encoding="utf-8")

    for name, ranks, chunks, micro_batches in FILES:
        schedule = generated(name, ranks, chunks, micro_batches)
        schedule._prepare_schedule_with_comms(schedule.pipeline_order)
        for form in ["compute_only", "compute_comms"]:
            schedule._dump_csv(FOLDER / f"{name}_{ranks}_{chunks}_{micro_batches}_{form}.csv", format=form)


if __name__ == "__main__":
    main()
