"""Writes tests/golden/nxd_run/: what neuronx-distributed's run_llama_nxd.py does, in one PyTorch process.

The loop, the schedule, the optimizers, the order of the data and the records follow the published script (main,
2026-04) and its helpers, with a model of transformers in place of its own; the weight decay is the flag's. Data
parallelism is followed by dealing the rows to several ranks and taking the mean of their gradients.
"""

import json
import math
import shutil
from collections import deque

from common import GOLDEN, generator, write_json
from models import llama

import datasets
import torch
from transformers import AutoConfig, AutoModelForCausalLM

FOLDER = GOLDEN / "nxd_run"
ROWS, LENGTH = 29, 32
SEED = 1234
CONFIG = llama(vocab_size=64, num_hidden_layers=2, max_position_embeddings=LENGTH, initializer_range=0.1)


class Rate:
    """CosineAnnealing of the examples' lr.py."""

    def __init__(self, lr, min_lr, warmup_steps, constant_steps, max_steps):
        self.lr, self.min_lr = lr, min_lr
        self.warmup, self.constant, self.max_steps = warmup_steps, constant_steps, max_steps
        self.decay = max_steps - (constant_steps + warmup_steps)

    def at(self, step):
        if self.warmup > 0 and step <= self.warmup:
            return self.megatron(step) if self.constant > 0 else self.lr * ((step + 1) / (self.warmup + 1))
        if self.constant > 0 and self.warmup + self.decay < step <= self.max_steps:
            return self.megatron(step)
        if step > self.max_steps:
            return self.min_lr
        if self.constant > 0:
            return self.megatron(step)
        share = 0.5 * (1 + math.cos(math.pi * (step - self.warmup) / (self.max_steps - self.warmup)))
        return (self.lr - self.min_lr) * share + self.min_lr

    def megatron(self, step):
        if self.warmup > 0 and step <= self.warmup:
            return self.lr * float(step) / float(self.warmup)
        if step > self.warmup + self.decay:
            return self.min_lr
        share = 0.5 * (math.cos(math.pi * (float(step - self.warmup) / float(self.decay))) + 1.0)
        return self.min_lr + share * (self.lr - self.min_lr)


class Fp32AdamW(torch.optim.Optimizer):
    """AdamW_FP32OptimParams: the update, then decay; epsilon 1e-6 is added to the root before it is corrected."""

    def __init__(self, groups, lr, betas, weight_decay):
        super().__init__(groups, {"lr": lr, "betas": betas, "eps": 1e-6, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state.update(step=0, m=torch.zeros_like(p), v=torch.zeros_like(p))
                state["step"] += 1
                state["m"].mul_(beta1).add_(p.grad, alpha=1.0 - beta1)
                state["v"].mul_(beta2).addcmul_(p.grad, p.grad, value=1.0 - beta2)
                size = group["lr"] * math.sqrt(1.0 - beta2 ** state["step"]) / (1.0 - beta1 ** state["step"])
                p.addcdiv_(state["m"], state["v"].sqrt().add_(group["eps"]), value=-size)
                p.add_(p, alpha=-group["lr"] * group["weight_decay"])


class Throughput:
    """Of the examples' training_utils.py; the clock's readings are given."""

    def __init__(self, batch_size, world_size, interval, now):
        self.sequences = batch_size * world_size * interval
        self.window_size = math.ceil(10 / interval)
        self.window, self.window_time, self.start = deque(), 0, now

    def get(self, now):
        step_time = now - self.start
        self.start += step_time
        self.window_time += step_time
        self.window.append(step_time)
        size = len(self.window)
        if size > self.window_size:
            self.window_time -= self.window.popleft()
            size -= 1
        return size * self.sequences / self.window_time

    def reset(self, now):
        self.start = now


def make_data():
    tokens = torch.randint(3, CONFIG["vocab_size"], (ROWS, LENGTH), generator=generator(77))
    for row in range(ROWS):  # something to learn: every token but the first few is its predecessor's successor
        for place in range(4, LENGTH):
            if place % 4 != row % 4:
                tokens[row, place] = (tokens[row, place - 1] * 5 + 1) % CONFIG["vocab_size"]
    ids = tokens.tolist()
    features = datasets.Features(
        {
            "input_ids": datasets.Sequence(datasets.Value("int32")),
            "attention_mask": datasets.Sequence(datasets.Value("int8")),
            "labels": datasets.Sequence(datasets.Value("int64")),
        }
    )
    rows = {"input_ids": ids, "attention_mask": [[1] * LENGTH] * ROWS, "labels": ids}
    folder = FOLDER / "data"
    shutil.rmtree(folder, ignore_errors=True)
    datasets.Dataset.from_dict(rows, features=features).save_to_disk(folder)
    # The library puts random names into the files; they mean nothing.
    state = json.loads((folder / "state.json").read_text())
    state["_fingerprint"] = "0" * 16
    (folder / "state.json").write_text(json.dumps(state, indent=2))
    return tokens


def batches(tokens, batch_size, ranks):
    """For every update of an epoch, the rows of each rank: DistributedSampler and DataLoader, both drop_last."""
    of_rank = [list(range(rank, len(tokens) // ranks * ranks, ranks)) for rank in range(ranks)]
    for first in range(0, len(of_rank[0]) - batch_size + 1, batch_size):
        yield [tokens[rows[first : first + batch_size]] for rows in of_rank]


def train(tokens, case):
    torch.manual_seed(SEED)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**CONFIG), dtype=torch.float32)
    decayed = [p for n, p in model.named_parameters() if "bias" not in n and "norm" not in n]
    rest = [p for n, p in model.named_parameters() if "bias" in n or "norm" in n]
    groups = [{"params": decayed, "weight_decay": case["weight_decay"]}, {"params": rest, "weight_decay": 0.0}]
    if case["use_fp32_optimizer"]:
        optimizer = Fp32AdamW(groups, case["lr"], (0.9, 0.95), 0)
    else:
        optimizer = torch.optim.AdamW(groups, lr=case["lr"], betas=(0.9, 0.95), eps=1e-8)
    rate = Rate(*(case[key] for key in ["lr", "min_lr", "warmup_steps", "constant_steps", "max_steps"]))
    ranks, parts = case["data_parallel"], case["num_microbatches"]
    records, step, epoch = [], 0, 0
    while True:
        for batch in batches(tokens, case["train_batch_size"], ranks):
            for group in optimizer.param_groups:
                group["lr"] = rate.at(step)
            total = 0.0
            for rows in batch:
                for part in rows.chunk(parts):
                    loss = model(input_ids=part, labels=part).loss / (parts * ranks)
                    loss.backward()
                    total += loss.item()
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).item()
            optimizer.step()
            optimizer.zero_grad()
            if step % case["logging_interval"] == 0:
                records.append(
                    {
                        "step": step,
                        "step loss": total,
                        "global_norm": norm,
                        "lr": rate.at(step),
                        "input_ids": int(batch[0].sum()),
                    }
                )
            step += 1
            if step >= case["max_steps"]:
                return case | {"records": records, "epoch": epoch, "final_loss": total}
        epoch += 1


def rates():
    cases = []
    for lr, min_lr, warmup, constant, steps in [
        (1.5e-5, 1e-6, 3, 0, 12),
        (1.5e-5, 1e-6, 3, 4, 12),
        (1e-3, 0.0, 0, 0, 7),
        (1e-3, 1e-4, 0, 5, 9),
        (1.5e-5, 1e-6, 2000, 0, 10),
        (3e-4, 3e-5, 4, 9, 10),
        (3e-4, 3e-4, 2, 0, 5),
    ]:
        rate = Rate(lr, min_lr, warmup, constant, steps)
        values = [rate.at(step) for step in range(steps + 3)]
        cases.append(
            {"lr": lr, "min_lr": min_lr, "warmup_steps": warmup, "constant_steps": constant, "max_steps": steps}
            | {"values": values}
        )
    return cases


def lines(interval, batch_size, ranks, updates):
    """Console lines for given times, losses and norms, and the throughputs in them."""
    noise = torch.rand(updates * 3 + 1, generator=generator(5), dtype=torch.float64).tolist()
    clock = 10.0
    counter = Throughput(batch_size, ranks, interval, clock)
    started, steps, printed, throughputs = clock, [], [], []
    for step in range(updates):
        seconds = 0.5 + noise[3 * step]
        clock += seconds
        loss = torch.tensor(4.0 - noise[3 * step + 1], dtype=torch.float32).item()
        norm = torch.tensor(1.0 + noise[3 * step + 2], dtype=torch.float32).item()
        at = {"seconds": seconds, "now": clock, "loss": loss, "norm": norm}
        if step % interval == 0:
            speed = counter.get(clock)
            throughputs.append(speed)
            printed.append(f"step {step} step_time {seconds}s throughput {speed} seq/s step loss {loss} grad norm {norm}")
            clock += 0.01
            counter.reset(clock)
        at["written"] = clock
        steps.append(at)
    skipped = math.ceil(10 / interval)
    averaged = throughputs[skipped:] if len(throughputs) > skipped else throughputs
    return {
        "interval": interval,
        "batch_size": batch_size,
        "data_parallel": ranks,
        "started": started,
        "steps": steps,
        "lines": printed,
        "average": round(sum(averaged) / len(averaged), 4),
        "peak": max(throughputs),
    }


def results_files():
    """TrainingMetrics.read_modify_write_file: an existing file, what is added, and the file afterwards."""
    cases = []

    def add(existing, key, data):
        merged = json.loads(existing) if existing.strip() else {}
        if merged:
            results = merged[next(iter(merged))]
            current = results.get(key)
            if not current:
                results[key] = data
            elif isinstance(current, list):
                current.extend(data)
            else:
                current.update(data)
        else:
            merged["results"] = {key: data}
        after = json.dumps(merged)
        cases.append({"existing": existing, "key": key, "data": data, "after": after})
        return after

    first = add("", "parameters", {"Model": "llama", "Batch size": 4, "Dataset": "data"})
    second = add(first, "metrics", [{"MetricName": "Final loss", "MeasuredValue": 3.25, "Units": ""}])
    third = add(second, "parameters", {"Batch size": 8, "Seed": 1})
    add(third, "metrics", [{"MetricName": "Peak throughput", "MeasuredValue": None, "Units": "seq/s"}])
    add('{"job 7": {"started": "early", "metrics": []}, "note": 1}', "metrics", [{"MetricName": "x"}])
    add(" \n", "metrics", [1])
    return cases


def main():
    tokens = make_data()
    write_json(FOLDER / "config.json", CONFIG)
    usual = {
        "train_batch_size": 4,
        "num_microbatches": 2,
        "data_parallel": 1,
        "max_steps": 10,
        "lr": 1e-2,
        "min_lr": 1e-3,
        "warmup_steps": 2,
        "constant_steps": 0,
        "weight_decay": 0.1,
        "use_fp32_optimizer": 0,
        "logging_interval": 1,
    }
    runs = {
        "usual": {},
        "fp32_optimizer": {"use_fp32_optimizer": 1, "weight_decay": 0.3},
        "constant_steps": {"constant_steps": 4, "logging_interval": 3, "weight_decay": 0.01},
        "two_ranks": {"data_parallel": 2, "num_microbatches": 4},
    }
    write_json(
        FOLDER / "expected.json",
        {
            "runs": {name: train(tokens, usual | changes) for name, changes in runs.items()},
            "rates": rates(),
            "lines": [lines(1, 16, 4, 14), lines(4, 8, 1, 9)],
            "results_files": results_files(),
        },
    )


if __name__ == "__main__":
    main()
