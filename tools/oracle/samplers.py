"""Writes tests/golden/samplers.json: what accelerate and transformers deal to every rank, and how rows are padded."""

import itertools
import json

from common import GOLDEN, REPOSITORY

import torch
from accelerate.data_loader import BatchSamplerShard, IterableDatasetShard, SeedableRandomSampler
from torch.utils.data import BatchSampler, SequentialSampler
from transformers import AutoTokenizer, DataCollatorForLanguageModeling
from transformers.trainer_pt_utils import LengthGroupedSampler

SEED = 42


def shuffled(samples, seed, epoch):
    """accelerate's sampler in one epoch of a run."""
    sampler = SeedableRandomSampler(range(samples), data_seed=seed, generator=torch.Generator())
    sampler.set_epoch(epoch)
    return sampler


def dealt_batches(samples, batch, ranks, drop_last, epoch, order):
    """The batches of every rank."""
    dealt = []
    for rank in range(ranks):
        sampler = SequentialSampler(range(samples)) if order == "sequential" else shuffled(samples, SEED, epoch)
        batches = BatchSampler(sampler, batch, drop_last)
        shard = BatchSamplerShard(batches, ranks, rank)
        # With one rank accelerate deals nothing: the batches are used as they are.
        dealt.append([list(part) for part in (shard if ranks > 1 else batches)])
    return dealt


def stream(samples, batch, ranks):
    dealt = []
    for rank in range(ranks):
        rows = list(IterableDatasetShard(range(samples), batch, False, ranks, rank))
        dealt.append([rows[i : i + batch] for i in range(0, len(rows), batch)])
    return dealt


def collated(rows, pad_with_eos, multiple):
    """transformers' causal-LM collator."""
    tokenizer = AutoTokenizer.from_pretrained(REPOSITORY / "examples" / "tokenizers" / "shakespeare-4k")
    if pad_with_eos:
        tokenizer.pad_token = tokenizer.eos_token
    collator = DataCollatorForLanguageModeling(tokenizer, mlm=False, pad_to_multiple_of=multiple)
    batch = collator([{"input_ids": row, "attention_mask": [1] * len(row)} for row in rows])
    case = {"rows": rows, "pad_id": tokenizer.pad_token_id, "pad_to_multiple_of": multiple or 1}
    return case | {name: batch[name].tolist() for name in ["input_ids", "labels", "attention_mask"]}


def digest(order):
    value = 0
    for index in order:
        value = (value * 31 + index) % (2**56 - 5)
    return value


def main():
    cases = []
    sizes = [(1, 4), (7, 2), (16, 4), (17, 4), (23, 4), (30, 6)]
    for (samples, batch), ranks, drop_last in itertools.product(sizes, [1, 2, 3], [False, True]):
        for order, epoch in [("shuffled", 1), ("sequential", 0)]:
            case = {"samples": samples, "batch_size": batch, "ranks": ranks, "drop_last": drop_last}
            case |= {"order": order, "epoch": epoch}
            case["batches"] = dealt_batches(samples, batch, ranks, drop_last, epoch, order)
            cases.append(case)
    streams = []  # a single process reads its stream as it is
    for (samples, batch), ranks in itertools.product(sizes, [2, 3]):
        case = {"samples": samples, "batch_size": batch, "ranks": ranks}
        case["batches"] = stream(samples, batch, ranks)
        streams.append(case)

    lengths = []
    for samples, batch in [(1, 1), (3, 4), (40, 4), (1000, 2), (5000, 8)]:
        values = torch.randint(1, 60, (samples,), generator=torch.Generator().manual_seed(samples)).tolist()
        order = list(LengthGroupedSampler(batch, lengths=values, generator=torch.Generator().manual_seed(SEED)))
        # The test makes the same lengths with the same generator.
        case = {"samples": samples, "batch_size": batch, "first": order[:40], "digest": digest(order)}
        lengths.append(case)
    rows = [[0, 7, 8, 1], [5, 1, 1, 2, 9, 10], [6]]
    padded = [collated(rows, eos, multiple) for eos in [True, False] for multiple in [None, 4]]
    groups = {"collated": padded, "dealt": cases, "streams": streams, "by_length": lengths}
    lines = [f' "{name}": [\n  ' + ",\n  ".join(json.dumps(case, separators=(",", ":")) for case in group) + "\n ]"
             for name, group in groups.items()]
    text = '{\n "seed": %d,\n' % SEED + ",\n".join(lines) + "\n}\n"
    (GOLDEN / "samplers.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
