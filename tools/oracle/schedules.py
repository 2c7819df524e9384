"""Writes tests/golden/schedules.json: the learning rate of every update under every scheduler of transformers."""

import warnings

from common import GOLDEN, write_json

import torch
from transformers import get_scheduler

STABLE_DECAY = {"num_decay_steps": 6, "min_lr_ratio": 0.1}

# scheduler, settings for its own arguments
SCHEDULERS = [
    ("linear", [{}]),
    ("cosine", [{}, {"num_cycles": 1.25}]),
    ("cosine_with_restarts", [{}, {"num_cycles": 3}]),
    ("polynomial", [{}, {"lr_end": 1e-4, "power": 2.0}]),
    ("constant", [{}]),
    ("constant_with_warmup", [{}]),
    ("inverse_sqrt", [{}, {"timescale": 50}]),
    ("cosine_with_min_lr", [{"min_lr_rate": 0.1}, {"min_lr": 1e-4}, {"min_lr_rate": 0.2, "num_cycles": 1.5}]),
    ("cosine_warmup_with_min_lr", [{"min_lr_rate": 0.1}, {"min_lr": 1e-4, "warmup_lr_rate": 0.25}]),
    (
        "warmup_stable_decay",
        [
            {"num_decay_steps": 6},
            STABLE_DECAY | {"warmup_type": "cosine", "decay_type": "linear"},
            STABLE_DECAY | {"warmup_type": "1-sqrt", "decay_type": "1-sqrt"},
            STABLE_DECAY | {"num_stable_steps": 2, "num_cycles": 1.5},
        ],
    ),
]
LENGTHS = [(20, 0), (23, 5), (8, 1), (1, 0)]
LEARNING_RATES = [1.0, 3e-4]
PLATEAU_METRICS = [4.0, 3.5, 3.6, 3.5, 3.55, 3.4, 3.4, 3.4, 3.4, 3.4, 3.39999, 3.5, 3.5, 3.5, 3.5]


def start(scheduler, rate, steps=None, warmup=None, arguments=None):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=rate)
    return optimizer, get_scheduler(scheduler, optimizer, warmup, steps, arguments)


def values(scheduler, rate, steps, warmup, arguments):
    optimizer, schedule = start(scheduler, rate, steps, warmup, arguments)
    rates = []
    for _ in range(steps + 4):
        rates.append(float(optimizer.param_groups[0]["lr"]))
        optimizer.step()
        schedule.step()
    return rates


def plateau(rate, arguments):
    optimizer, schedule = start("reduce_lr_on_plateau", rate, arguments=arguments)
    rates = []
    for metric in PLATEAU_METRICS:
        rates.append(float(optimizer.param_groups[0]["lr"]))
        optimizer.step()
        schedule.step(metric)
    return rates


def main():
    warnings.simplefilter("ignore")
    cases = []

    def add(scheduler, rate, steps, warmup, arguments, rates, **more):
        case = {"name": f"{scheduler}_{len(cases)}", "scheduler": scheduler, "learning_rate": rate}
        case |= {"num_training_steps": steps, "warmup_steps": warmup, "kwargs": arguments, **more, "values": rates}
        cases.append(case)

    for scheduler, settings in SCHEDULERS:
        for arguments in settings:
            for rate in LEARNING_RATES:
                for steps, warmup in LENGTHS:
                    add(scheduler, rate, steps, warmup, arguments, values(scheduler, rate, steps, warmup, arguments))
    for arguments in [{"patience": 1}, {"patience": 0, "factor": 0.5, "min_lr": 1e-4, "cooldown": 2, "threshold": 1e-2}]:
        for rate in LEARNING_RATES:
            steps = len(PLATEAU_METRICS)
            add("reduce_lr_on_plateau", rate, steps, 0, arguments, plateau(rate, arguments), metrics=PLATEAU_METRICS)
    write_json(GOLDEN / "schedules.json", {"cases": cases})


if __name__ == "__main__":
    main()
