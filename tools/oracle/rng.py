"""Writes tests/golden/rng.safetensors: what PyTorch's CPU generator gives for raw bits, distributions and permutations."""

from common import CaseFile, DTYPES, GOLDEN, generator, mt19937

import torch

SEEDS = [0, 42, 123456789]
NORMAL_SIZES = [1, 2, 5, 15, 16, 17, 31, 40, 1000]


def perform(draw, source):
    size = draw["size"]
    match draw["op"]:
        case "rand":
            return torch.rand(size, generator=source)
        case "normal":
            return torch.empty(size, dtype=DTYPES[draw["dtype"]]).normal_(draw["mean"], draw["std"], generator=source)
        case "uniform":
            return torch.empty(size, dtype=DTYPES[draw["dtype"]]).uniform_(draw["low"], draw["high"], generator=source)
        case "randperm":
            return torch.randperm(size, generator=source)
        case "randint":
            return torch.randint(draw["low"], draw["high"], (size,), generator=source)
        case "randint64":
            return torch.empty(size, dtype=torch.int64).random_(generator=source)
    raise ValueError(draw["op"])


def raw(seed, size):
    """The 32-bit outputs, checked against what PyTorch shows of them: the low 24 bits, in torch.rand."""
    outputs = torch.tensor(mt19937(seed, size))
    assert torch.equal((outputs & 0xFFFFFF) * 2.0**-24, torch.rand(size, generator=generator(seed)))
    return outputs


def rand(size):
    return {"op": "rand", "size": size}


def normal(size, mean=0.0, std=0.02, dtype="float32"):
    return {"op": "normal", "size": size, "mean": mean, "std": std, "dtype": dtype}


def uniform(size, bound, dtype="float32"):
    return {"op": "uniform", "size": size, "low": -bound, "high": bound, "dtype": dtype}


def randperm(size):
    return {"op": "randperm", "size": size}


def randint(size, low, high):
    return {"op": "randint", "size": size, "low": low, "high": high}


def single_draws():
    """Draws that each start a fresh generator."""
    yield from (rand(size) for size in [1, 17, 700])
    for dtype in DTYPES:
        yield from (normal(size, dtype=dtype) for size in NORMAL_SIZES)
        yield from (uniform(size, 0.05, dtype) for size in [1, 15, 16, 17, 300])
    yield normal(40, mean=1.0, std=0.5)
    yield from (randperm(size) for size in [1, 2, 10, 20, 1000, 5000])
    yield randint(20, 0, 10)
    yield randint(20, -5, 1000000)
    yield randint(20, 0, 2**28 - 1)
    yield randint(20, 0, 2**28)
    yield randint(20, 0, 2**32 - 1)
    yield randint(20, 0, 2**40)
    yield {"op": "randint64", "size": 5}


SEQUENCES = {
    "cached_normal": [normal(1), normal(1), normal(3), normal(2), normal(5), rand(3), normal(1), normal(16), normal(1)],
    "odd_then_block": [normal(5), normal(40), normal(2), normal(17), rand(2), normal(1, mean=2.0, std=3.0)],
    "model_like": [normal(99, std=1.0), uniform(33, 0.2), uniform(7, 0.2), normal(99), normal(7), uniform(640, 0.1), normal(16)],
    "bfloat16": [normal(5, dtype="bfloat16"), normal(17, dtype="bfloat16"), uniform(9, 0.3, "bfloat16"), normal(2), rand(2)],
    "integers": [randperm(10), randint(3, 0, 7), randperm(1), {"op": "randint64", "size": 2}, rand(1), randperm(20), rand(2)],
}


def main():
    file = CaseFile(GOLDEN / "rng.safetensors")
    for seed in SEEDS:
        file.add(f"seed{seed}.raw", {"0": raw(seed, 1300)}, seed=seed, draws=[{"op": "raw", "size": 1300}])
        cases = [(f"single{index}", [draw]) for index, draw in enumerate(single_draws())]
        for name, draws in cases + list(SEQUENCES.items()):
            source = generator(seed)
            fields = {str(index): perform(draw, source) for index, draw in enumerate(draws)}
            file.add(f"seed{seed}.{name}", fields, seed=seed, draws=draws)
    file.write()


if __name__ == "__main__":
    main()
