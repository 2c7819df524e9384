"""Loads adapters that Drover saved in PEFT and compares what both compute.

    check_adapters.py FOLDER… [--drover PROGRAM] [--tolerance X]

For each folder: PEFT loads it without missing or unexpected tensors, writes the same adapter_config.json again, and gives the logits of
`drover generate --model FOLDER`; `drover convert --merge_adapter` gives the weights of merge_and_unload. Exit status 1 when logits or
weights differ by more than --tolerance, relative to their norm.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

from common import REPOSITORY

import torch
from peft import AutoPeftModelForCausalLM
from transformers import AutoModelForCausalLM

PROMPT = [1, 15, 2, 40, 68, 75, 75, 78]


def difference(ours, theirs):
    return ((ours.double() - theirs.double()).norm() / theirs.double().norm().clamp(min=1e-30)).item()


def same_config(folder, model):
    """Whether PEFT would write the file as it is; it keeps sets, which have no order."""
    def plain(config):
        return {key: sorted(value) if isinstance(value, list) else value for key, value in config.items()}

    with tempfile.TemporaryDirectory() as copy:
        config = model.peft_config["default"]
        config.inference_mode = True
        config.save_pretrained(copy)
        theirs = json.loads((Path(copy) / "adapter_config.json").read_text())
    return plain(theirs) == plain(json.loads((folder / "adapter_config.json").read_text()))


@torch.no_grad()
def check(folder, options):
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        model = AutoPeftModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    wrong = [str(line.message) for line in said if "adapter keys" in str(line.message)]
    theirs = model(torch.tensor([PROMPT])).logits[0, -1]
    command = [options.drover, "generate", "--model", folder, "--dtype", "float32", "--prompt_ids", ",".join(map(str, PROMPT))]
    printed = subprocess.run([*command, "--max_new_tokens", "1", "--json", "--logits"], check=True, capture_output=True, text=True)
    of_logits = difference(torch.tensor(json.loads(printed.stdout)["logits"]), theirs)
    config = same_config(folder, model)
    with tempfile.TemporaryDirectory() as merged:
        subprocess.run([options.drover, "convert", "--merge_adapter", folder, "--output_dir", merged], check=True, capture_output=True)
        ours = AutoModelForCausalLM.from_pretrained(merged, dtype=torch.float32).state_dict()
    plain = model.merge_and_unload().state_dict()
    of_weights = max(difference(ours[name], plain[name]) for name in plain)
    agrees = not wrong and config and set(ours) == set(plain) and max(of_logits, of_weights) <= options.tolerance
    print(json.dumps({"adapter": str(folder), "difference_of_logits": of_logits, "difference_of_weights": of_weights,
                      "same_config": config, "agrees": agrees, **({"warnings": wrong} if wrong else {})}))
    return agrees


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--drover", type=Path, default=REPOSITORY / "build" / "release" / "drover")
    parser.add_argument("--tolerance", type=float, default=1e-5)
    options = parser.parse_args()
    sys.exit(not all([check(folder, options) for folder in options.folders]))


if __name__ == "__main__":
    main()
