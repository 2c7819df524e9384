"""Shows that torch and transformers read what `drover convert` writes.

    check_converted.py build/release/drover

Converts golden models to every form, loads the files with torch.load(weights_only=True) (mapped, too) or with
transformers, and compares every tensor, or the logits, with the original. Prints a line per case.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from common import GOLDEN
import nxd_shards

import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

torch.serialization.add_safe_globals([nxd_shards.TensorReference])


def convert(*words):
    subprocess.run([sys.argv[1], "convert", *map(str, words)], check=True, stderr=subprocess.DEVNULL)


def load(path):
    value = torch.load(path, weights_only=True)
    mapped = torch.load(path, weights_only=True, mmap=True)
    if isinstance(value, dict):
        tensors = Path(f"{path}.tensors")
        for name, entry in value.items():
            if isinstance(entry, nxd_shards.TensorReference):
                value[name] = load(tensors / f"tensor_{entry.tid}.pt")
            elif isinstance(entry, torch.Tensor):
                assert torch.equal(entry, mapped[name]), name
    return value


def expect_equal(found, expected, what):
    assert found.keys() == expected.keys(), (what, found.keys() ^ expected.keys())
    for name, tensor in expected.items():
        assert found[name].dtype == tensor.dtype and torch.equal(found[name], tensor), (what, name)
    print(what, len(expected), "tensors")


def check_ranks(case, settings, folder):
    golden = GOLDEN / "nxd" / case
    full = load_file(golden / "full.safetensors")
    flags = []
    for flag in ["tp_size", "pp_size", "ep_size", "virtual_pp_size", "kv_size_multiplier", "hw_backend",
                 "model_style", "pad_attn_heads", "i_tp_round_factor"]:
        if flag in settings:
            flags += [f"--{flag}", settings[flag]]
    style = settings["style"]
    flags += {"linear": ["--qkv_linear"], "fused": ["--qkv_linear", "--fuse_qkv"],
              "coalesced": ["--coalesce_qkv"], "plain": []}[style]
    for form in [[], ["--save_xser"]]:
        out = folder / f"{case}{len(form)}"
        convert("--convert_from_full_state", "--input_dir", golden / "full.safetensors", "--config", golden,
                "--output_dir", out, *flags, *form)
        for tp in range(settings["tp_size"]):
            for pp in range(settings["pp_size"]):
                for ep in range(settings.get("ep_size", 1)):
                    ep_text = f"ep_rank_{ep:02}_" if settings.get("ep_size", 1) > 1 else ""
                    file = out / "model" / f"dp_rank_00_{ep_text}tp_rank_{tp:02}_pp_rank_{pp:02}.pt"
                    expect_equal(load(file), nxd_shards.shard_of(full, settings, tp, pp, ep), f"{case} {file.name}")
                    if form:
                        info = torch.load(f"{file}.info.pt", weights_only=True)
                        for number, tensor in enumerate(load(file).values()):
                            assert info[number]["dtype"] == tensor.dtype and info[number]["shape"] == tensor.shape


def check_model(name, folder):
    golden = GOLDEN / "hf" / name
    expected = load_file(golden / "expected.safetensors")
    weights = {}
    for file in golden.glob("model*.safetensors"):
        weights.update(load_file(file))
    convert("--input_dir", golden, "--output_dir", folder / name, "--output_format", "checkpoint")
    expect_equal(load(folder / name / "checkpoint.pt"), weights, f"{name} checkpoint.pt")
    for format in ["bin", "safetensors"]:
        for size in ["10KB", "1GB"]:
            out = folder / f"{name}-{format}-{size}"
            convert("--input_dir", golden, "--output_dir", out, "--output_format", format, "--max_shard_size", size)
            model = AutoModelForCausalLM.from_pretrained(out, attn_implementation="eager", dtype="auto")
            with torch.no_grad():
                logits = model(expected["input_ids"].long()).logits.float()
            assert torch.equal(logits, expected["logits"]), out
            print(name, format, size, "logits")


def main():
    with tempfile.TemporaryDirectory() as name:
        for case, settings in nxd_shards.CASES.items():
            check_ranks(case, settings, Path(name))
        for model in ["llama-single", "llama-sharded", "llama-tied", "mixtral-published"]:
            check_model(model, Path(name))


if __name__ == "__main__":
    main()
