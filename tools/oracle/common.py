"""Helpers shared by the scripts that write golden files. Import this module before torch."""

import json
import os
from pathlib import Path

# PyTorch's AMX kernels fault on machines whose hypervisor hides the tile palette.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import torch
from safetensors.torch import save_file

torch.set_num_threads(2)

REPOSITORY = Path(__file__).resolve().parents[2]
GOLDEN = REPOSITORY / "tests" / "golden"
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def write_json(path, value):
    """Writes `value` as indented JSON with a final newline."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def write_tensors(path, tensors, **metadata):
    """Writes a safetensors file; metadata values that are not strings become JSON text."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = {key: value if isinstance(value, str) else json.dumps(value) for key, value in metadata.items()}
    save_file({name: tensor.detach().clone().contiguous() for name, tensor in tensors.items()}, path, metadata=text)
    sort_metadata(path)


def sort_metadata(path):
    """Rewrites a safetensors header with sorted metadata: the library writes the keys in random order."""
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    path.write_bytes(data[:8] + text.ljust(size) + data[8 + size :])
    path.chmod(0o644)


class CaseFile:
    """Collects cases (a JSON object each, plus tensors named <case>.<field>) for one golden file."""

    def __init__(self, path):
        self.path = path
        self.cases = []
        self.tensors = {}

    def add(self, name, fields, **scalars):
        self.cases.append({"name": name, **scalars})
        for field, tensor in fields.items():
            self.tensors[f"{name}.{field}"] = tensor

    def write(self):
        write_tensors(self.path, self.tensors, cases=self.cases)


def generator(seed):
    return torch.Generator().manual_seed(seed)


def mt19937(seed, count):
    """The first `count` outputs of std::mt19937(seed)."""
    state = [seed & 0xFFFFFFFF]
    for i in range(1, 624):
        state.append((1812433253 * (state[-1] ^ (state[-1] >> 30)) + i) & 0xFFFFFFFF)
    outputs = []
    while len(outputs) < count:
        for i in range(624):
            y = (state[i] & 0x80000000) | (state[(i + 1) % 624] & 0x7FFFFFFF)
            state[i] = state[(i + 397) % 624] ^ (y >> 1) ^ (0x9908B0DF if y & 1 else 0)
        for y in state:
            y ^= y >> 11
            y ^= (y << 7) & 0x9D2C5680
            y ^= (y << 15) & 0xEFC60000
            outputs.append(y ^ (y >> 18))
    return outputs[:count]
