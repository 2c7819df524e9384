"""Writes tests/golden/ops/{adafactor,sgd,adagrad,rmsprop}.safetensors: five steps of each optimizer."""

from common import CaseFile, DTYPES, GOLDEN, generator
from ops import name_of
from optimizers import build_optimizer

import torch

STEPS = 5
# name: shape, weight decay
TENSORS = {
    "matrix": ((7, 17), 0.1),
    "norm": ((33,), 0.0),
    "one": ((1,), 0.1),
    "wide": ((3, 64), 0.01),
    "one_column": ((5, 1), 0.1),
    "one_row": ((1, 9), 0.0),
    "embedding": ((11, 6), 0.1),
    "experts": ((3, 10, 6), 0.1),
}
# optimizer: settings, the names its state has in the golden file and in PyTorch
OPTIMIZERS = {
    "adafactor": (
        {"epsilon": 1e-30, "clip_threshold": 1.0, "decay_rate": -0.8},
        {"row": "exp_avg_sq_row", "column": "exp_avg_sq_col", "v": "exp_avg_sq"},
    ),
    "sgd": ({"momentum": 0.0}, {}),
    "adagrad": ({"epsilon": 1e-10, "learning_rate_decay": 0.0}, {"sum": "sum"}),
    "rmsprop": ({"alpha": 0.99, "epsilon": 1e-8, "momentum": 0.0}, {"v": "square_avg"}),
}
# name, learning rates, standard deviation of each step's gradient. Growing gradients make Adafactor clip its update.
SCHEDULES = [
    ("usual", [1e-2] * STEPS, [10.0**-step for step in range(STEPS)]),
    ("scheduled", [0.0, 5e-3, 1e-2, 7.5e-3, 1e-3], [4.0 ** (step - 2) for step in range(STEPS)]),
]


def without_gradient(name, step):
    """The leading indices of a tensor that get no gradient in `step`: unused tokens, an expert without tokens."""
    if name == "embedding":
        return [2, 7] + ([4] if step < 2 else [])
    return [0] if name == "experts" and step < 3 else []


def gradients(step, deviation, dtype, source):
    result = {}
    for name, (shape, _) in TENSORS.items():
        result[name] = (torch.randn(shape, generator=source) * deviation).to(dtype)
        for index in without_gradient(name, step):
            result[name][index] = 0
    return result


def run(settings, rates, deviations, dtype, rounded):
    """p0, g0 ... and the final parameters of one case, and the optimizer with its parameters by name.

    `rounded`: the optimizer works on fp32 copies, whose values are rounded to `dtype` after each step.
    """
    source = generator(9100)
    initial = {name: (torch.randn(shape, generator=source) * 0.5).to(dtype) for name, (shape, _) in TENSORS.items()}
    working = torch.float32 if rounded else dtype
    parameters = {name: p.to(working).clone().requires_grad_() for name, p in initial.items()}
    groups = [{"params": [p], "weight_decay": TENSORS[name][1]} for name, p in parameters.items()]
    optimizer = build_optimizer(settings, groups)
    fields = {f"{name}.p0": p for name, p in initial.items()}
    for step in range(STEPS):
        for group in optimizer.param_groups:
            group["lr"] = rates[step]
        for name, gradient in gradients(step, deviations[step], dtype, source).items():
            fields[f"{name}.g{step}"] = gradient
            parameters[name].grad = gradient.to(working)
        optimizer.step()
        if rounded:
            for p in parameters.values():
                for tensor in [p.data, *optimizer.state[p].values()]:
                    if torch.is_tensor(tensor) and tensor.shape == p.shape:
                        tensor.copy_(tensor.to(dtype))
    return fields | {f"{name}.p": p.detach().to(dtype) for name, p in parameters.items()}, optimizer, parameters


def states(optimizer, parameters, names, dtype):
    fields = {}
    for name, p in parameters.items():
        for ours, theirs in names.items():
            if theirs in optimizer.state[p]:
                fields[f"{name}.{ours}"] = optimizer.state[p][theirs].to(dtype)
    return fields


def main():
    tensors = [{"name": name, "weight_decay": decay} for name, (_, decay) in TENSORS.items()]
    for name, (constants, state_names) in OPTIMIZERS.items():
        file = CaseFile(GOLDEN / "ops" / f"{name}.safetensors")
        settings = {"name": name, "learning_rate": 1.0} | constants
        for dtype in DTYPES:
            # Adafactor computes in fp32 and rounds when storing, whatever the dtype.
            implementations = ["plain", "rounded"] if dtype == "bfloat16" and name != "adafactor" else ["plain"]
            for implementation in implementations:
                for label, rates, deviations in SCHEDULES:
                    fields, optimizer, parameters = run(
                        settings, rates, deviations, DTYPES[dtype], implementation == "rounded"
                    )
                    state_dtype = torch.float32 if name == "adafactor" else DTYPES[dtype]
                    fields |= states(optimizer, parameters, state_names, state_dtype)
                    scalars = {"learning_rates": rates, **constants, "steps": STEPS, "implementation": implementation}
                    file.add(name_of(dtype, implementation, label), fields, dtype=dtype, **scalars, tensors=tensors)
        file.write()


if __name__ == "__main__":
    main()
