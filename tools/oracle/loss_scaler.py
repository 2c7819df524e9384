"""Writes tests/golden/loss_scaler.json: how torch.amp.GradScaler's scale moves for given sequences of finite and overflowing steps."""

from common import GOLDEN, write_json

import torch

CASES = {
    "defaults": ({}, lambda step: step in (3, 4, 2500)),
    "short": (dict(init_scale=8.0, growth_factor=3.0, backoff_factor=0.25, growth_interval=4), lambda step: step % 11 == 7),
    "never": (dict(init_scale=2.0**120, growth_interval=2), lambda step: False),
}
STEPS = {"defaults": 4700, "short": 120, "never": 40}


def main():
    cases = []
    for name, (settings, overflows) in CASES.items():
        weight = torch.zeros(1, requires_grad=True)
        optimizer = torch.optim.SGD([weight], lr=0.0)
        scaler = torch.amp.GradScaler("cpu", **settings)
        changes, before = [], None
        for step in range(STEPS[name]):
            weight.grad = torch.full((1,), float("inf") if overflows(step) else 0.0)
            scaler.scale(torch.zeros(1))
            scaler.unscale_(optimizer)
            scaler.step(optimizer)
            scaler.update()
            if scaler.get_scale() != before:
                before = scaler.get_scale()
                changes.append([step, before])
        cases.append(
            {
                "name": name,
                "settings": {"init_scale": 65536.0, "growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": 2000}
                | settings,
                "steps": STEPS[name],
                "overflows": [step for step in range(STEPS[name]) if overflows(step)],
                "changes": changes,
            }
        )
    write_json(GOLDEN / "loss_scaler.json", cases)


if __name__ == "__main__":
    main()
