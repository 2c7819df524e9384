"""Writes tests/golden/gguf: what llama.cpp's Python package makes of given values.

    gguf_files.py

header.gguf has a key of every type and three tensors; q8_0.safetensors has floats and the bytes that they become.
"""

from common import GOLDEN, generator, write_tensors

import gguf
import numpy as np
import torch

FOLDER = GOLDEN / "gguf"


def write_header():
    FOLDER.mkdir(parents=True, exist_ok=True)
    writer = gguf.GGUFWriter(FOLDER / "header.gguf", "llama")
    writer.add_string("a.text", "übung")
    writer.add_uint32("a.number", 4_000_000_000)
    writer.add_float32("a.real", 1e-5)
    writer.add_bool("a.boolean", True)
    writer.add_array("a.texts", ["one", "", "three"])
    writer.add_array("a.reals", [0.5, -1.25])
    writer.add_array("a.numbers", [1, -2, 3])
    writer.add_tensor("odd", np.arange(5, dtype=np.float32))
    writer.add_tensor("matrix", np.arange(12, dtype=np.float16).reshape(3, 4))
    floats = np.arange(128, dtype=np.float32).reshape(2, 64)
    quantized = gguf.quants.quantize(floats, gguf.GGMLQuantizationType.Q8_0)
    writer.add_tensor("quantized", quantized, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_q8_0():
    rows = torch.randn(6, 64, generator=generator(1)) * torch.tensor([1e-6, 0.02, 1.0, 50.0, 0.0, 1.0])[:, None]
    rows[5, :32] = torch.arange(-16, 16) * 0.5  # halves, which are rounded away from zero
    rows[5, 0] = 127.0
    rows[5, 32:] = rows[5, 32:].bfloat16().float()
    quantized = gguf.quants.quantize(rows.numpy(), gguf.GGMLQuantizationType.Q8_0)
    write_tensors(FOLDER / "q8_0.safetensors", {"from": rows, "to": torch.from_numpy(quantized)}, kind="q8_0")


if __name__ == "__main__":
    write_header()
    write_q8_0()
