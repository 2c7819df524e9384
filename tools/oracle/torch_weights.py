"""Writes tests/golden/hf/<name>-bin: model folders of hf_folder.py with their weights as torch.save writes them.

llama-tied-bin: one pytorch_model.bin with lm_head.weight in the embedding's storage, and o_proj stored
transposed, as tensors are that were a view. llama-sharded-bin: bfloat16 shards with an index, one of them of
parameters in place of tensors.
"""

import json
import shutil

from common import GOLDEN

import torch
from safetensors.torch import load_file

NAMES = ["config.json", "generation_config.json", "expected.safetensors"]


def new_folder(name):
    folder = GOLDEN / "hf" / f"{name}-bin"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for file in NAMES:
        shutil.copy(GOLDEN / "hf" / name / file, folder)
    return folder


def tied():
    folder = new_folder("llama-tied")
    weights = load_file(GOLDEN / "hf" / "llama-tied" / "model.safetensors")
    for name, tensor in weights.items():
        if name.endswith("o_proj.weight"):
            weights[name] = tensor.t().contiguous().t()
    weights["lm_head.weight"] = weights["model.embed_tokens.weight"]
    torch.save(weights, folder / "pytorch_model.bin")


def sharded():
    folder = new_folder("llama-sharded")
    weights = {}
    for file in sorted((GOLDEN / "hf" / "llama-sharded").glob("model-*.safetensors")):
        weights.update(load_file(file))
    names = sorted(weights)
    parts = [names[: len(names) // 2], names[len(names) // 2 :]]
    index = {"metadata": {"total_size": sum(tensor.nbytes for tensor in weights.values())}, "weight_map": {}}
    for i, part in enumerate(parts):
        file = f"pytorch_model-{i + 1:05}-of-{len(parts):05}.bin"
        torch.save({name: torch.nn.Parameter(weights[name]) if i == 0 else weights[name] for name in part}, folder / file)
        index["weight_map"].update({name: file for name in part})
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps(index, indent=2) + "\n")


if __name__ == "__main__":
    tied()
    sharded()
